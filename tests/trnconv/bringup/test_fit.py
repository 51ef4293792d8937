"""Stage 4: constants that are 20 % off are recovered from times, and change a plan."""

import json
from dataclasses import replace

import pytest

from nkisim.errors import NkiValidationError
from nkisim.machine import TRN2, find_machine
from nkisim.measured_machine import machine_of, named_machine, read_machine
from trnconv.bringup import stage4
from trnconv.bringup.ladder import GREEN, Bench
from trnconv.bringup.runner import SimulatedRunner
from trnconv.bringup.timing_kernels import clocked_of
from trnconv.cases import find
from trnconv.planner.best import choose
from trnconv.planner.explain import explain_choice
from trnconv.problem.conv_problem import ConvProblem

FIELDS = [clocked.field for clocked in clocked_of(1)]
WITHIN = 0.03
# No kernel of the clock is about these: what is fitted must not lean on them either.
OTHERS = ("dma_start_ns", "dma_done_ns", "pe_latency_cycles", "semaphore_ns", "dma_packet_bytes")


def doctored(sign, others=()):
    """Every other constant 20 % above, the rest 20 % below what is published."""
    values = {}
    for number, name in enumerate((*FIELDS, *others)):
        factor = 1 + 0.2 * (sign if number % 2 else -sign)
        values[name] = float(getattr(TRN2.timing, name)) * factor
    return replace(TRN2, timing=replace(TRN2.timing, **values))


def calibrated(machine, cores, folder):
    bench = Bench(TRN2, cores, SimulatedRunner(machine, cores), folder=folder)
    found = stage4.calibrate(bench)
    assert found.state == GREEN
    return folder / "machine-trn2-simulated.json"


@pytest.mark.contact
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_doctored_constants_are_recovered(cores, sign, tmp_path):
    machine = doctored(sign)
    read = read_machine(calibrated(machine, cores, tmp_path))
    for name in FIELDS:
        wanted = getattr(machine.timing, name)
        assert getattr(read.timing, name) == pytest.approx(wanted, rel=WITHIN), name


@pytest.mark.contact
def test_they_are_recovered_where_other_constants_are_off_too(tmp_path):
    """Differences of two times leave out what both have; the launch alone has all of it."""
    machine = doctored(1, OTHERS)
    read = read_machine(calibrated(machine, 1, tmp_path))
    for name in FIELDS:
        if name != "launch_ns":
            wanted = getattr(machine.timing, name)
            assert getattr(read.timing, name) == pytest.approx(wanted, rel=WITHIN), name


def document(**changed):
    return {
        "machine": "trn2",
        "host": "a-host",
        "sdk": "2.33",
        "date": "2026-11-16",
        "constants": {"pe_ghz": {"value": 1.92}, "dma_bytes_per_ns": {"value": 27.6}},
        **changed,
    }


def test_a_measured_machine_has_a_name_of_its_own_and_is_cited(tmp_path):
    path = tmp_path / "machine-trn2-measured.json"
    path.write_text(json.dumps(document()))
    machine = named_machine(str(path))
    assert machine.name.startswith("trn2@measured-")
    assert find_machine(machine.name) is machine
    assert find_machine(f"{machine.name}+fence").timing == machine.timing
    assert named_machine(f"{path}+fence+no-loops").name == f"{machine.name}+fence+no-loops"
    assert find_machine(f"{machine.name}+fence").base_name == machine.base_name == "trn2"
    assert machine.constants.endswith("2 of them measured on a-host, SDK 2.33, 2026-11-16")
    assert (machine.timing.pe_ghz, machine.timing.vector_ghz) == (1.92, TRN2.timing.vector_ghz)


def test_a_layers_plan_changes_by_it_and_explain_cites_it(tmp_path):
    path = tmp_path / "machine-trn2-measured.json"
    values = doctored(1).timing
    constants = {name: {"value": float(getattr(values, name))} for name in FIELDS}
    path.write_text(json.dumps(document(constants=constants)))
    case = find("wan_pointwise_384")
    plain, measured = (
        choose(ConvProblem(case.shape, machine, case.dtype))
        for machine in (TRN2, read_machine(path))
    )
    assert plain.taken.plan.in_words() != measured.taken.plan.in_words()
    text = "\n".join(explain_choice(measured))
    assert "8 of them measured on a-host, SDK 2.33, 2026-11-16" in text
    assert "measured" not in "\n".join(explain_choice(plain))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"machine": "trn9"}, "a machine 'trn9'"),
        ({"constants": {"speed": {"value": 1}}}, "constants speed, which no machine has"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(changed, words, tmp_path):
    with pytest.raises(NkiValidationError, match=words):
        machine_of(document(**changed), tmp_path / "x.json")


def test_a_file_that_says_too_little_is_refused(tmp_path):
    with pytest.raises(NkiValidationError, match="it does not say host"):
        machine_of({"machine": "trn2", "sdk": "", "date": "", "constants": {}}, tmp_path / "x.json")
    with pytest.raises(NkiValidationError, match="it cannot be read"):
        read_machine(tmp_path / "none.json")
