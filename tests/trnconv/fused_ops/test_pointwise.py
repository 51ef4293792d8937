"""The price of an elementwise operation against the schedule of a kernel written here."""

import numpy as np
import pytest

import nkisim
from nkisim import TRN1, TRN2, TRN3, Spec
from nkisim.timing import schedule
from trnconv._nki import nisa, nl
from trnconv.errors import PlanError
from trnconv.fused_ops.pointwise import Pointwise

WIDTH = 2048


def add(a, b):
    """a + b, [128, n], in steps with loads two steps ahead."""
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = [
        [nl.ndarray((128, WIDTH), dtype=a.dtype, buffer=nl.sbuf) for _ in range(4)]
        for _ in range(3)
    ]
    spans = [slice(n, min(n + WIDTH, a.shape[1])) for n in range(0, a.shape[1], WIDTH)]
    for n in range(len(spans) + 2):
        if n < len(spans):
            wide = slice(0, spans[n].stop - spans[n].start)
            nisa.dma_copy(dst=tiles[0][n % 4][:, wide], src=a[:, spans[n]])
            nisa.dma_copy(dst=tiles[1][n % 4][:, wide], src=b[:, spans[n]])
        if n >= 2:
            span, slot = spans[n - 2], (n - 2) % 4
            wide = slice(0, span.stop - span.start)
            left, right, both = (tile[slot][:, wide] for tile in tiles)
            nisa.tensor_tensor(dst=both, data1=left, data2=right, op=nl.add)
            nisa.dma_copy(dst=total[:, span], src=both)
    return total


@pytest.mark.parametrize("machine", [TRN2, TRN3], ids=lambda machine: machine.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("positions", [10, 3000, 100_000])
def test_the_price_of_an_add_is_within_5_percent_of_its_schedule(positions, dtype, machine):
    spec = Spec((128, positions), dtype)
    run = nkisim.run(nkisim.Kernel(add)[1], spec, spec, machine=machine, lnc=1, values=False)
    timeline = schedule(run.trace, run.machine)
    price = Pointwise(128 * positions, reads=2, dtype=dtype).price(machine)
    assert price.ns == pytest.approx(timeline.makespan_ns, rel=0.05)
    assert price.instructions == run.trace.compiler_count
    assert (
        price.hbm_bytes
        == 3 * 128 * positions * np.dtype(f"f{2 if dtype != 'float32' else 4}").itemsize
    )


def test_two_cores_take_half_and_long_ones_are_a_loop():
    one, two = (Pointwise(10**9).price(TRN2, cores) for cores in (1, 2))
    assert two.ns == pytest.approx(one.ns / 2, rel=0.02)
    assert one.regions == two.regions == 1
    assert one.bound == "dma"


def test_what_is_refused_says_why():
    assert "at least one" in Pointwise(0).refuses(TRN2)
    assert "trn1" in Pointwise(5).refuses(TRN1)
    with pytest.raises(PlanError, match="dtype"):
        Pointwise(5, dtype="int8").price(TRN2)
