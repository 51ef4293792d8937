"""`python -m benchmarks price`: what it covers, and what it prints."""

from benchmarks.__main__ import main
from benchmarks.price import PricedPlan, asks, priced_plans
from trnconv.planner.table import ALGORITHMS


def test_every_algorithm_and_machine_is_asked():
    every = list(asks())
    assert len({ask.name for ask in every}) == len(every) >= 60
    assert {ask.problem.machine.name for ask in every} == {"trn1", "trn2", "trn3"}
    asked = {ask.problem.direction for ask in every}
    assert asked == {algorithm.direction for algorithm in ALGORITHMS}


def test_a_price_beside_its_schedule():
    (ask,) = [ask for ask in asks() if ask.name == "groups"]
    (plan,) = priced_plans(ask)
    assert abs(plan.error) < 0.05
    late = PricedPlan(plan.name, plan.plan, plan.price_ns, 2 * plan.price_ns)
    assert late.error == -0.5


def test_the_last_line_sums_up(capsys):
    assert main(["price", "--only", "k3", "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert "Modelled: constants" in printed
    assert printed.splitlines()[-1].startswith("within 5 %: 1/1, worst ")
