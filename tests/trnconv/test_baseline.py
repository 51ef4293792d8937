"""The stored baseline: what it has, what it refuses to answer, and that it is what is modelled."""

import pytest

from benchmarks.scatter import scatter_ns
from nkisim.machine import TRN1, TRN2, Reading
from trnconv import baseline
from trnconv.baseline import layer_ns, model_baseline, plain, stored
from trnconv.cases import BENCHMARK, find
from trnconv.cpu_time import _with_numpy, measurable, measure
from trnconv.geometry import conv_shape
from trnconv.models import Size
from trnconv.models import find as find_model
from trnconv.reference import forward


@pytest.mark.parametrize("case", BENCHMARK, ids=lambda case: case.name)
def test_every_benchmark_layer_has_a_baseline(case):
    assert layer_ns(case.shape) > 0


@pytest.mark.parametrize("key", ["k3", "e", "k4"])
def test_a_stored_time_is_what_the_model_of_the_design_gives(key):
    shape = find(key).shape
    assert layer_ns(shape) == round(scatter_ns(plain(shape), TRN2, Reading.default))


def test_what_is_not_comparable_has_no_baseline():
    shape = find("a").shape
    assert layer_ns(shape, TRN1) is None
    assert layer_ns(shape, TRN2, "float32") is None
    grouped = conv_shape((1, 96, 6, 48, 1280), (96, 48, 3, 3, 3), padding=(0, 1, 1), groups=2)
    assert layer_ns(grouped) is None
    doubled = conv_shape((1, 96, 6, 24, 640), (96, 96, 3, 3, 3), upsample=(1, 2, 2))
    assert layer_ns(doubled) is None


def test_a_model_at_its_production_size():
    entry = find_model("wan2.1")
    found = model_baseline(entry, entry.production, "decode")
    assert found.seconds == pytest.approx(15.6, abs=0.05)  # README.md
    assert sum(call.calls for call, _ in found.calls) > 500
    for call, ns in found.calls:
        assert found.ns_of(call.shape()) is not None
        assert ns == stored()[call.shape()]
    assert found.ns_of(conv_shape((1, 5, 1, 7, 7), (6, 5, 1, 1, 1))) is None
    assert model_baseline(entry, Size("x", 9, 64, 96), "decode") is None
    assert model_baseline(entry, entry.production, "decode", TRN1) is None


def test_old_constants_are_not_used(monkeypatch):
    monkeypatch.setattr(baseline, "CONSTANTS_VERSION", "0")
    stored.cache_clear()
    try:
        assert stored() == {}
    finally:
        monkeypatch.undo()
        stored.cache_clear()
    assert stored()


def test_numpy_measures_the_right_computation(monkeypatch):
    """What is timed is the convolution: its sum is kept and compared."""
    import numpy as np

    shape = conv_shape((1, 6, 4, 7, 9), (4, 3, 3, 3, 3), stride=(1, 2, 1), padding=1, groups=2)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 6, 4, 7, 9), np.float32)
    w = rng.standard_normal((4, 3, 3, 3, 3), np.float32)
    kept = []
    zeros = np.zeros
    monkeypatch.setattr(np, "zeros", lambda *given: kept.append(zeros(*given)) or kept[-1])
    taken = _with_numpy(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1))), w, shape)
    monkeypatch.undo()
    np.testing.assert_allclose(kept[0], forward(x, w, None, shape), atol=1e-4)
    assert taken.seconds > 0
    assert taken.by.startswith("NumPy")


def test_measured_is_positive_and_names_the_library():
    shape = find("image_2x8").shape
    assert measurable(shape)
    taken = measure(shape)
    assert taken.seconds > 0
    assert "float32" in taken.by
