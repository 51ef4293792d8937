"""Every device rule: a kernel that breaks it, a neighbour that does not, and what is done then."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import nkisim
import nkisim.isa as nisa
import nkisim.language as nl
from manual.rule_kernels import PAIRS, no_loop, refill_at_the_end
from nkisim.device_rules.rule import State, Strength
from nkisim.device_rules.rulebook import RULES
from nkisim.device_rules.sources import SOURCES
from nkisim.errors import DeviceRuleError, NkiValidationError
from two_cores import within_time

SWITCHED = tuple(name for name, rule in RULES.items() if rule.strength in (Strength.W, Strength.X))
VALUES = pytest.mark.parametrize("values", [True, False])


def start(launch, *, values=True, rules=()):
    """The run of one kernel of a pair."""
    kernel = nkisim.Kernel(launch.kernel, lnc=2 if launch.programs == 2 else None)
    options = {"machine": launch.machine, "lnc": launch.lnc, "rules": rules, "values": values}
    return within_time(lambda: nkisim.run(kernel, **options))


def touched(run):
    return {one.rule.name: one.state for one in run.rules}


def test_every_rule_has_its_pair():
    assert set(PAIRS) == set(RULES)


@VALUES
@pytest.mark.parametrize("name", PAIRS)
def test_a_broken_rule_is_refused_warned_about_or_noted(name, values):
    rule, launch = RULES[name], PAIRS[name].breaks
    if rule.strength is Strength.S:
        with pytest.raises(DeviceRuleError) as refusal:
            start(launch, values=values)
    elif rule.strength is Strength.M:
        with pytest.warns(nkisim.DeviceRuleWarning, match=f"rule {name} forbids"):
            assert touched(start(launch, values=values))[name] is State.warned
        with pytest.raises(DeviceRuleError) as refusal:
            start(launch, values=values, rules=("strict",))
    else:
        assert touched(start(launch, values=values))[name] is State.off
        with pytest.raises(DeviceRuleError) as refusal:
            start(launch, values=values, rules=(name,))
    assert refusal.value.rule == name
    assert rule.remedy == refusal.value.remedy
    assert rule.seen_on in refusal.value.limit


@VALUES
@pytest.mark.parametrize("name", PAIRS)
def test_the_neighbour_breaks_nothing(name, values):
    switches = tuple(one for one in SWITCHED if one != "grid-below-lnc" or name == one)
    run = start(PAIRS[name].keeps, values=values, rules=("strict", *switches))
    assert name not in touched(run)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_is_complete(rule):
    assert any(key.partition("#")[0] in rule.source for key in SOURCES)
    for text in (rule.forbids, rule.reported, rule.seen_on, rule.remedy):
        assert text
        assert not text.endswith(".")


def test_a_rule_is_applied_to_its_machines_only():
    groups = PAIRS["psum-groups"].breaks.kernel
    run = nkisim.run(groups, machine="trn2", lnc=1)
    assert "psum-groups" not in touched(run)
    with pytest.raises(DeviceRuleError):
        nkisim.run(groups, machine="trn1")


def test_a_rule_is_warned_about_once_a_run_and_at_the_line():
    with pytest.warns(nkisim.DeviceRuleWarning) as caught:
        nkisim.run(refill_at_the_end, machine="trn2", lnc=1)
    (warning,) = caught
    source = Path(warning.filename)
    assert source.name == "rule_kernels.py"
    line = source.read_text().splitlines()[warning.lineno - 1]
    assert line.strip() == "nisa.dma_copy(window, x.select(0, iteration))"


def test_switches_come_from_the_environment(monkeypatch):
    launch = PAIRS["nested-loops"].breaks
    monkeypatch.setenv("NKISIM_RULES", "strict, nested-loops")
    with pytest.raises(DeviceRuleError, match="nested-loops"):
        nkisim.run(launch.kernel, machine="trn2", lnc=1)
    with pytest.raises(DeviceRuleError, match="sbuf-refill"):
        nkisim.run(refill_at_the_end, machine="trn2", lnc=1)
    assert touched(nkisim.run(launch.kernel, machine="trn2", lnc=1, rules=()))
    monkeypatch.setenv("NKISIM_RULES", "no-such-rule")
    with pytest.raises(NkiValidationError, match="no-such-rule"):
        nkisim.run(no_loop, machine="trn2")


@pytest.mark.parametrize("words", ["strict", ("psum-groups",), ("loop-trips",)])
def test_only_rules_that_are_off_have_a_switch(words):
    with pytest.raises(NkiValidationError):
        nkisim.run(no_loop, machine="trn2", rules=words)


def test_simulate_takes_the_same_options():
    with pytest.raises(DeviceRuleError, match="loop-on-one-program"):
        nkisim.simulate(PAIRS["loop-on-one-program"].breaks.kernel, machine="trn2")()
    nkisim.simulate(PAIRS["loop-on-one-program"].breaks.kernel, machine="trn2", lnc=1)()
    with pytest.raises(DeviceRuleError, match="sbuf-refill"):
        nkisim.simulate(refill_at_the_end, machine="trn2", lnc=1, rules=("strict",))()


@pytest.mark.parametrize(
    ("machine", "lnc", "text", "message"),
    [
        ("trn2", 3, None, r"lnc=3 on trn2"),
        ("trn1", 2, None, r"lnc=2 on trn1"),
        ("trn2", None, "4", "NEURON_LOGICAL_NC_CONFIG=4"),
        ("trn2", None, "two", "NEURON_LOGICAL_NC_CONFIG=two"),
    ],
)
def test_a_logical_core_that_does_not_exist_is_refused(monkeypatch, machine, lnc, text, message):
    if text is not None:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", text)
    with pytest.raises(NkiValidationError, match=message):
        nkisim.run(no_loop, machine=machine, lnc=lnc)


def test_the_environment_says_how_many_cores_a_logical_core_has(monkeypatch):
    kernel = PAIRS["loop-on-one-program"].breaks.kernel
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert "grid-below-lnc" not in touched(nkisim.run(kernel, machine="trn2"))
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.raises(DeviceRuleError, match="1 of 2 programs"):
        nkisim.run(kernel, machine="trn3")


def test_a_fp32_bank_takes_a_16_bit_transpose_on_trn1_and_there_only():
    x = np.arange(12, dtype=np.float16).reshape(3, 4)

    def kernel(x):
        tile, turned = nl.load(x), nl.ndarray((4, 3), nl.float32, nl.psum)
        nisa.nc_transpose(turned, tile, engine=nisa.engine.tensor)
        return (
            nl.store(out := nl.ndarray((4, 3), nl.float32, nl.shared_hbm), nl.copy(turned)) or out
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(nkisim.run(kernel, x, machine="trn1").outputs, x.T)
    with pytest.raises(NkiValidationError, match="same dtype"):
        nkisim.run(kernel, x, machine="trn2")


def test_groups_that_end_before_others_begin_are_one_at_a_time():
    """A bank that is filled again, and ranges that are written once, are what devices run."""

    def kernel():
        weights, sums, out = (
            nl.zeros((8, 8), nl.float32),
            nl.ndarray((8, 16), nl.float32, nl.psum),
            nl.ndarray((8, 16), nl.float32),
        )
        for columns in (16, 8, 16):
            for step in range(3):
                moving = nl.zeros((8, columns), nl.float32)
                nisa.nc_matmul(sums[:, :columns], weights, moving, accumulate=step > 0)
            nisa.tensor_copy(out[:, :columns], sums[:, :columns])
        nisa.nc_matmul(sums[:, :8], weights, weights, accumulate=False)
        nisa.nc_matmul(sums[:, 8:], weights, weights, accumulate=False)
        nisa.nc_matmul(sums[:, 8:], weights, weights, accumulate=True)

    assert touched(nkisim.run(kernel, machine="trn1")) == {}


def test_interleaved_columns_are_groups_of_their_own():
    def kernel():
        weights, sums = nl.zeros((8, 8), nl.float32), nl.ndarray((8, 16), nl.float32, nl.psum)
        for step in range(2):
            nisa.nc_matmul(sums[:, 0::2], weights, weights, accumulate=step > 0)
            nisa.nc_matmul(sums[:, 1::2], weights, weights, accumulate=step > 0)

    with pytest.raises(DeviceRuleError, match="psum-groups"):
        nkisim.run(kernel, machine="trn1")


def test_accumulators_of_one_engine_may_cross_iterations():
    def kernel():
        total = nl.zeros((8, 8), nl.float32)
        nl.fori_loop(0, 4, lambda _: nisa.tensor_tensor(total, total, total, nl.add))

    assert touched(nkisim.run(kernel, machine="trn2", lnc=1, rules=("strict",))) == {}


def test_a_wait_in_the_same_iteration_makes_a_refill_safe():
    def kernel(*, edge):
        x = nl.zeros((8, 8), nl.float32, nl.private_hbm)
        window, out, other = (nl.zeros((8, 8), nl.float32) for _ in range(3))

        def body(_):
            nisa.tensor_copy(out, window)
            refill = nisa.dma_copy(window, x)
            if edge:
                nisa.memset(other, 0.0).depends_on(refill)
            else:
                nisa.tensor_copy(other, window)

        nl.fori_loop(0, 4, body)

    for edge in (True, False):
        done = nkisim.run(kernel, edge=edge, machine="trn2", lnc=1, rules=("strict",))
        assert touched(done) == {}


def test_an_offset_cell_may_be_counted_up_for_the_next_iteration():
    """As kernels that ship do: the Vector engine adds, and the DMA of the next iteration reads."""

    def kernel():
        x, row = nl.zeros((8, 16), nl.float32, nl.private_hbm), nl.zeros((1, 16), nl.float32)
        cell = nl.zeros((1, 1), nl.int32)

        def body(_):
            nisa.dma_copy(row, x.ap([[16, 1], [1, 16]], scalar_offset=cell, indirect_dim=0))
            nisa.tensor_scalar(cell, cell, nl.add, 1)

        nl.fori_loop(0, 8, body)

    assert touched(nkisim.run(kernel, machine="trn2", lnc=1, rules=("strict",))) == {}


def test_a_dma_that_may_skip_goes_by_the_named_dimension():
    """Offset 5 on a dimension of 4 is inside the tensor, and skipped."""

    def kernel(x, place):
        cell, row = nl.load(place), nl.zeros((1, 2), nl.float32)
        source = x.ap([[2, 1], [1, 2]], scalar_offset=cell, indirect_dim=1)
        nisa.dma_copy(row, source, oob_mode=nisa.oob_mode.skip)
        out = nl.ndarray((1, 2), nl.float32, nl.shared_hbm)
        nisa.dma_copy(out, row)
        return out

    x = np.arange(1, 17, dtype=np.float32).reshape(2, 4, 2)
    for place, expected in ((3, [[7, 8]]), (5, [[0, 0]])):
        done = nkisim.run(kernel, x, np.array([[place]], np.int32), machine="trn2")
        np.testing.assert_array_equal(done.outputs, expected)


def few_channels_transposed(x):
    """Two channels of three tiles: the 128 positions go to the partitions, in one dimension."""
    tiles = nl.ndarray((128, 3, 2), nl.bfloat16)
    pattern = [[x.shape[1], 2], [128, 3], [1, 128]]
    nisa.dma_transpose(dst=tiles, src=x.ap(pattern, offset=0))
    y = nl.ndarray((128, 3, 2), nl.bfloat16, nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tiles)
    return y


def test_the_last_axis_of_a_transposing_dma_is_that_of_partitions():
    x = nkisim.Spec((2, 502), "bfloat16")
    run = nkisim.run(few_channels_transposed, x, machine="trn2", lnc=1, values=False)
    assert "dma-split-partitions" not in touched(run)
