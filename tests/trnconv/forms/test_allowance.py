"""Our kernels break the device rules that they are listed with, and no others."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nkisim
import nkisim.isa as nisa
import nkisim.language as nl
from conv_arrays import integer_arrays
from nkisim.device_rules.rule import State
from nkisim.device_rules.rulebook import RULES
from trnconv.forms.allowance import BROKEN, NAME, allowed
from trnconv.geometry import conv_shape
from trnconv.runtime import LaunchOptions
from trnconv.runtime.convolve import convolve_shape, plan_for
from trnconv.runtime.depthwise import depthwise as convolve_depthwise

SRC = Path(__file__).parents[3]


def test_every_listed_rule_exists_and_every_kernel_is_one_of_ours():
    for kernel, rules in BROKEN.items():
        assert rules <= set(RULES), kernel
        text = "".join(path.read_text() for path in (SRC / "src/trnconv/forms").glob("*/kernel.py"))
        assert re.search(rf"^def {kernel}\(", text, re.MULTILINE)


def test_nothing_else_in_the_packages_has_an_allowance():
    places = [
        path.relative_to(SRC).as_posix()
        for folder in ("src", "benchmarks", "examples", "validation", "manual")
        for path in sorted((SRC / folder).rglob("*.py"))
        if re.search(r"\bAllowance\(|\ballowance=", path.read_text())
    ]
    assert places == [
        "src/nkisim/running/kernel.py",  # hands it on
        "src/trnconv/forms/allowance.py",
    ]


def test_a_kernel_that_is_not_listed_has_none():
    assert allowed(bare_copy_with_bias).allowance is None


def convolved(target="trn2", *, cores=1, rolled=False, rows=40):
    """The rules that a small convolution breaks."""
    shape = conv_shape((1, 40, 4, rows, 20), (24, 40, 3, 3, 3), padding=(0, 1, 1))
    x, w, bias = integer_arrays(shape, "bfloat16")
    launch = LaunchOptions(target, cores=cores)
    if rolled:
        plans = plan_for(shape, "bfloat16", launch)
        loops = [replace(p, rolled=True, rows=p.row_multiple, lead=(), ahead=False) for p in plans]
        launch = replace(launch, plans=tuple(loops))
    return convolve_shape((x,), w, bias, shape, launch).runs


def depthwise():
    x, w = np.ones((1, 16, 4, 6, 8), np.float32), np.ones((16, 1, 3, 3, 3), np.float32)
    return [convolve_depthwise(x, w, np.ones(16, np.float32), target="trn1", engines="vector").run]


CALLS = {
    "forward": (lambda: convolved(rolled=True), {"loop-on-one-program"}),
    "forward on trn1": (lambda: convolved("trn1"), set()),
    "forward_on_two_cores": (lambda: convolved(cores=2), set()),
    "depthwise": (depthwise, set()),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_run_of_ours_names_the_rules_it_breaks(name):
    call, expected = CALLS[name]
    for run in call():
        broken = {one.rule.name for one in run.rules}
        assert broken <= BROKEN[name.split(" ", maxsplit=1)[0]]
        assert broken >= expected
        assert all((one.state, one.allowance) == (State.allowed, NAME) for one in run.rules)


def test_programs_with_other_loops_are_refused():
    """Plans by hand: nine rows in loops over rows, five of one core and four of the other."""
    with pytest.raises(nkisim.DeviceRuleError, match="programs-differ"):
        convolved(cores=2, rolled=True, rows=9)


def test_a_kernel_is_refused_without_it():
    with pytest.raises(nkisim.DeviceRuleError, match="activation-copy-bias"):
        nkisim.run(bare_copy_with_bias, target="trn1", values=False)


def bare_copy_with_bias():
    """What the Scalar engine of trn1 does not do."""
    tile, bias = nl.zeros((8, 8), nl.float32), nl.zeros((8, 1), nl.float32)
    nisa.activation(dst=tile, op=nl.copy, data=tile, bias=bias)
