"""Layers of stage 2 in nkisim, and what workarounds leave out of them."""

from pathlib import Path

import pytest

import neuron_features as features
from nkisim.machine import find_machine
from repetition import few
from trnconv.algorithms.program import traced
from trnconv.bringup import stage2
from trnconv.bringup.ladder import GREEN, Bench
from trnconv.bringup.layers import LAYERS
from trnconv.bringup.runner import SimulatedRunner
from trnconv.runtime.launch import prepare

BY_NAME = {layer.name: layer for layer in LAYERS}
LEFT_OUT = {
    "placed-by-compiler": ("image", features.fixed_addresses),
    "no-psum-in-place": ("residual-before", features.psum_in_place),
    "dense-evictions": ("transposed", features.strided_eviction),
    "no-loads-ahead": ("ahead", features.loads_ahead),
    "no-dma-transpose": ("weight-gradient", features.transposing_dma),
    "no-growing-banks": ("winograd", features.growing_bank),
    "no-loops": ("looped", features.has_loop),
    "fence": ("looped", features.unfenced),
}


@few(2)
@pytest.mark.parametrize(
    "name",
    [
        "pointwise",
        "image",
        "leaky-relu",
        "elu",
        "residual-after",
        "transposed",
        "depthwise",
        "normed",
        "gpsimd",
        "streamed",
        "pairs",
        "columns",
    ],
)
def test_a_layer_is_right(name):
    machine = find_machine("trn2")
    bench = Bench(machine, 1, SimulatedRunner(machine, 1))
    assert stage2.run(BY_NAME[name], bench).state == GREEN


@few(5)
@pytest.mark.parametrize("workaround", LEFT_OUT)
def test_a_layer_does_the_thing_and_with_the_workaround_it_does_not(workaround):
    name, feature = LEFT_OUT[workaround]
    layer = BY_NAME[name]
    for target, does in (("trn2", True), (f"trn2+{workaround}", False)):
        problem = layer.problem(find_machine(target))
        run = traced(prepare(layer.planned(problem, 1)))
        assert feature(run) is does, target


def test_no_kernel_names_who_makes_descriptors():
    """So no result depends on it, and there is no workaround for it: the compiler decides."""
    sources = (Path(__file__).parents[3] / "src" / "trnconv").rglob("*.py")
    assert not [path for path in sources if "dge_mode" in path.read_text(encoding="utf-8")]
