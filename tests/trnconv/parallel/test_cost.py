"""What one rank of several does on paper, against formulas."""

import pytest

pytestmark = pytest.mark.diffusers
torch = pytest.importorskip("torch")

from dataclasses import replace

from nkisim.fabric import FABRICS
from nkisim.machine import TRN2
from trnconv.models import Size, find
from trnconv.parallel import TrafficKind
from trnconv.parallel.cost import Part, core_time, rank_on_meta
from trnconv.parallel.overlap import ALWAYS, AUTO, NEVER, LinkedCore, balance, overlaps
from trnconv.pytorch.estimate import estimate, run_entry_on_meta

HUNYUAN = find("hunyuanvideo")
SIZE = Size("test", 9, 48, 40)
THREE = Part(HUNYUAN, SIZE, "decode", (3, 1))
LARGER = replace(THREE, size=Size("larger", 5, 192, 320))  # so large that some overlaps pay
PLACE = LinkedCore.of(TRN2)


@pytest.fixture(scope="module")
def times():
    return {cores: core_time(replace(THREE, counts=(cores, 1)), PLACE) for cores in (1, 3)}


def test_one_core_sends_and_copies_nothing(times):
    one = times[1]
    beside = (one.halos_s, one.gathers_s, one.statistics_s, one.copies_s, one.received_bytes)
    assert beside == (0, 0, 0, 0, 0)
    assert one.largest_share == 1
    assert one.seconds == one.convolutions_s + one.attention_s + one.others_s > 0


def test_the_middle_of_three_ranks_receives_two_rows_for_every_convolution():
    """No caches here. Two rows of the input as it lies, upsampled in the kernel or not."""
    run = run_entry_on_meta(HUNYUAN, SIZE, "decode")
    expected = 0
    for work, calls in run.report.stats.works.items():
        shape = work.shape
        rows = 2 if shape.kernel[1] == 3 else 0
        expected += calls * rows * shape.c_in * shape.size[0] * shape.size[2] * 2
    _, spread, share = rank_on_meta(THREE, PLACE)
    assert spread.comm.rank == 1
    assert share == 1 / 3
    assert spread.comm.traffic.received(TrafficKind.halo) == expected


def test_messages_cost_latency_and_bandwidth(times):
    _, spread, _ = rank_on_meta(THREE, PLACE)
    fabric, traffic = FABRICS["trn2"], spread.comm.traffic
    rate = TRN2.timing.dma_engines * TRN2.timing.dma_bytes_per_ns  # three cores of one chip
    ns = (
        traffic.times(TrafficKind.halo) * fabric.message_ns
        + traffic.received(TrafficKind.halo) / rate
    )
    assert times[3].halos_s == pytest.approx(ns / 1e9)


def test_what_is_apart_is_what_execution_would_do():
    """One piece of code decides: a rank on paper takes the ways that pay, and no other."""
    _, spread, _ = rank_on_meta(LARGER, PLACE)
    _, forced, _ = rank_on_meta(replace(LARGER, overlap=ALWAYS), PLACE)
    paying = {ways for ways in forced.apart if overlaps(ways)}
    assert set(spread.apart) == paying
    assert 0 < len(paying) < len(forced.apart)


def test_the_time_of_an_overlap_is_that_of_its_parts():
    """Convolutions, boundaries included, and what halos take beyond the bands they hide behind."""
    part = replace(THREE, overlap=ALWAYS)
    run, spread, _ = rank_on_meta(part, PLACE)
    time = core_time(part, PLACE)
    assert time.convolutions_s == estimate(run, TRN2, cores=1).seconds
    assert time.hidden_s == pytest.approx(
        sum(balance(ways).hidden_ns * times for ways, times in spread.apart.items()) / 1e9
    )
    launches = sum(len(ways.boundaries) * times for ways, times in spread.apart.items())
    assert time.launches_s == pytest.approx(launches * TRN2.timing.launch_ns / 1e9)
    assert 0 < time.hidden_s <= time.halos_s
    beside = time.gathers_s + time.statistics_s + time.copies_s + time.attention_s + time.others_s
    exposed = time.halos_s - time.hidden_s
    whole = time.convolutions_s + beside + exposed + time.launches_s
    assert time.seconds == pytest.approx(whole)


def test_a_large_video_takes_less_time_with_overlap():
    """Halos are hidden, and bands are not copied beside them; boundaries cost less than that."""
    with_, without = (
        core_time(replace(LARGER, overlap=overlap), PLACE) for overlap in (AUTO, NEVER)
    )
    assert with_.seconds < without.seconds
    assert with_.copies_s < without.copies_s
    assert (without.hidden_s, without.launches_s) == (0, 0)
    assert with_.halos_s == without.halos_s


def test_attention_is_shared_and_gathered(times):
    """Queries, a third of them, times all keys; both products, at the peak of the array."""
    tokens, channels, layers = 3 * 6 * 5, 512, 1
    macs = layers * tokens * tokens * 2 * channels
    peak = TRN2.partitions**2 * TRN2.timing.pe_ghz
    assert times[1].attention_s == pytest.approx(macs / peak / 1e9)
    assert times[3].attention_s == pytest.approx(times[1].attention_s / 3)
    assert times[3].gathers_s > 0


def test_links_of_a_chip_are_shared_among_its_neighbours():
    fabric = FABRICS["trn2"]
    assert fabric.bytes_per_ns(TRN2, same_chip=False) == 1024 / 4 / 2
    assert fabric.bytes_per_ns(TRN2, same_chip=True) == 16 * 23.0


def test_a_pair_is_one_rank_and_twice_the_engines(times):
    """Two cores of a launch: peak and copies twice as fast, a chip of eight has four of them."""
    pair = LinkedCore.of(TRN2, cores=2)
    assert pair.macs_per_ns == 2 * PLACE.macs_per_ns
    assert pair.copy_ns(1000) == PLACE.copy_ns(1000) / 2
    assert pair.message_ns(10**6, 4) == PLACE.message_ns(10**6, 8)
    assert pair.message_ns(10**6, 5) == PLACE.message_ns(10**6, 9) > PLACE.message_ns(10**6, 8)
    time = core_time(replace(THREE, counts=(1, 1)), pair)
    assert time.convolutions_s < times[1].convolutions_s


def test_norms_and_other_copies_are_counted(times):
    """A third of the video has less of them, and more than nothing."""
    assert 0 < times[3].others_s < times[1].others_s
