"""`python -m benchmarks plans`: everything is planned, and what is not is said."""

import re

import pytest

from benchmarks import plans
from benchmarks.__main__ import main
from trnconv.catalogue import calls
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape
from trnconv.problem.limits import DEFAULT_BUDGET

LAST_LINE = r"planned (\d+)/(\d+) on ([a-z0-9 ]+), median (\d+\.\d) ms, most instructions (\d+)"
SMALL = "wan2.2_animate_face_encoder"  # three signals
ASKED = ["plans", "--model", SMALL, "--jobs", "1"]


def printed(capsys, *arguments, code=0):
    assert main([*arguments]) == code
    return capsys.readouterr().out.splitlines()


def last(lines):
    found = re.fullmatch(LAST_LINE, lines[-1])
    assert found
    return found


def test_a_model_is_planned_on_all_machines(capsys):
    lines = printed(capsys, *ASKED)
    found = last(lines)
    assert found[3] == "trn1 trn2 trn3"
    assert found[1] == found[2] == "3"
    assert 0 < int(found[5]) <= DEFAULT_BUDGET
    assert lines[0].startswith("3 dense records are 3 distinct problems")


def test_two_processes_plan_the_same(capsys):
    alone = last(printed(capsys, *ASKED, "--machines", "trn2"))
    pair = last(printed(capsys, *ASKED[:-1], "2", "--machines", "trn2"))
    assert (alone[1], alone[2], alone[5]) == (pair[1], pair[2], pair[5])


def test_a_failure_is_reported_with_its_reason(capsys, monkeypatch):
    def taken_but_on_trn1(shape, machine):
        if machine.name == "trn1":
            raise PlanError("nothing fits")
        return taken(shape, machine)

    taken = plans._taken
    monkeypatch.setattr(plans, "_taken", taken_but_on_trn1)
    lines = printed(capsys, *ASKED, "--machines", "trn1,trn2", code=1)
    failed = [line for line in lines if line.startswith("failed on trn1: ")]
    assert len(failed) == 3
    assert all(line.endswith(": PlanError: nothing fits") for line in failed)
    assert last(lines).group(1, 2) == ("0", "3")


def test_zeros_of_a_wrapper_are_planned_in_both_ways():
    """The first call of the catalogue has two frames and a border of zeros in its input."""
    captured, implicit = plans.distinct_problems(calls()[:1])
    assert captured.size == (3, 482, 834)
    assert implicit.size == (1, 480, 832)
    assert implicit.pad_before == (2, 1, 1)
    assert plans.distinct_problems([*calls()[:1], *calls()[:1]]) == [captured, implicit]


def test_grouped_and_transposed_convolutions_are_planned_too():
    records = [call for call in calls() if call.model == "sana_video_2b_dit_ffn"]
    assert sorted(call.groups == 1 for call in records) == [False, True, True, True]
    assert len(plans.distinct_problems(records)) == 4
    transposed = [call for call in calls() if call.transposed]
    assert transposed
    for shape in plans.distinct_problems(transposed):
        outcome = plans.plan_task(plans.Task(shape, "trn2"))
        assert (outcome.failure, outcome.launches) == ("", 1)


def test_tensors_beyond_32_bits_are_planned_by_launches():
    """5.9e9 elements, which HBM holds twice, are cut in halves until none has 2^31: four parts."""
    shape = conv_shape((1, 128, 64, 720, 1000), (128, 128, 3, 3, 3), padding=1)
    outcome = plans.plan_task(plans.Task(shape, "trn2"))
    assert outcome.failure == ""
    assert outcome.launches == 4
    assert outcome.looped
    assert 0 < outcome.instructions <= DEFAULT_BUDGET


def test_the_largest_come_first():
    shape = conv_shape((1, 3, 8, 10), (5, 3, 3, 3), stride=2, padding=1)
    task = plans.Task(shape, "trn2")
    outcomes = [plans.Planned(task=task, ms=1.0, instructions=size) for size in (7, 9, 1, 3, 8, 2)]
    rows = plans.largest(outcomes).splitlines()[2:]
    assert [int(row.split()[0]) for row in rows] == [9, 8, 7, 3, 2]
    assert rows[0].endswith("1x3x1x8x10 * 5x3x1x3x3 stride 1x2x2 pad 0x1x1..0x1x1")


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (20, 19), (21, 20), (100, 95)])
def test_a_percentile_is_one_of_the_values(count, expected):
    assert plans.percentile(range(count, 0, -1), 95) == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--machines", "trn2,trn9"], "no machine trn9; there are trn1, trn2, trn3"),
        (["--jobs", "0"], "0 processes: at least 1 is needed"),
    ],
)
def test_a_wrong_option_is_refused(asked, said, capsys):
    with pytest.raises(SystemExit) as refusal:
        main(["plans", *asked])
    assert refusal.value.code == 2
    assert said in capsys.readouterr().err


def test_an_unknown_model_is_refused_with_those_there_are(capsys):
    assert main(["plans", "--model", "nobody"]) == 2
    message = capsys.readouterr().err
    assert "'nobody'" in message
    assert "wan2.1_vae" in message
