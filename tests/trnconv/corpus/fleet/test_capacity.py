"""Capacity: the arithmetic, done again by hand."""

import pytest

from trnconv.corpus.fleet.capacity import Assumptions, Demand, ModelledClip, capacity
from trnconv.corpus.fleet.decode_service import serving
from trnconv.corpus.fleet.instances import find_instance, instances
from trnconv.errors import TrnconvError, UnsupportedError
from trnconv.models import LatentSize, Size

CLIP = ModelledClip(
    size=Size("720p81", 81, 720, 1280),
    latent=LatentSize(16, 21, 90, 160),
    convolution_s=5.5,
    copied_s=0.5,
    peak_bytes=7 * 10**9,
    weight_bytes=3 * 10**8,
)
DEMAND = Demand(clips=86_400 * 10, seconds=5)  # ten a second for a day
TRN2 = find_instance("trn2.48xlarge")


def by_name(found):
    return {one.name: one for one in (*found.resources, *found.memory)}


def test_each_resource_by_hand():
    found = capacity(DEMAND, CLIP, TRN2, Assumptions())
    rows = by_name(found)
    assert rows["NeuronCores"].demand == pytest.approx(10 * 6.0 / 0.5)
    assert rows["NeuronCores"].supply == 16 * 8
    assert rows["vCPUs, decoding"].demand == pytest.approx(10 * 5 * 30 * 720 * 1280 / 60e6)
    assert rows["vCPUs, decoding"].supply == pytest.approx(192 * 0.8)
    assert rows["object store, reading"].demand == pytest.approx(10 * 5 * 5e6 / 8)
    assert rows["object store, writing"].demand == pytest.approx(10 * 16 * 21 * 90 * 160 * 4)
    assert rows["object store, writing"].supply == pytest.approx(50e9 / 8 * 0.8)
    assert rows["device memory"].demand == pytest.approx(128 * 7.3e9)
    assert rows["host memory"].demand == pytest.approx(128 * (3 * 81 * 720 * 1280 * 3 + 6e9))
    assert found.read_bytes == pytest.approx(864_000 * 3.125e6)
    assert found.written_bytes == pytest.approx(864_000 * 16 * 21 * 90 * 160 * 4)
    assert found.pixel_bytes == pytest.approx(864_000 * 81 * 720 * 1280 * 3)


def test_as_many_instances_as_the_scarcest_resource_asks_for():
    found = capacity(DEMAND, CLIP, TRN2, Assumptions())
    assert (found.instances, found.resources[0].name) == (1, "NeuronCores")
    assert found.used(found.resources[0]) == pytest.approx(120 / 128)
    assert found.clips_per_s_most == pytest.approx(10 * 128 / 120)
    twice = capacity(Demand(clips=DEMAND.clips * 2, seconds=5), CLIP, TRN2, Assumptions())
    assert (twice.instances, twice.clips_per_s_most) == (2, pytest.approx(20 * 256 / 240))
    assert twice.used(twice.resources[0]) == pytest.approx(120 / 128)
    assert twice.used(twice.memory[0]) == pytest.approx(found.used(found.memory[0]))


def test_another_resource_breaks_first_when_it_is_scarce():
    slow = capacity(DEMAND, CLIP, TRN2, Assumptions(decode_mpixel_s=2, source_area=2))
    assert slow.resources[0].name == "vCPUs, decoding"
    assert slow.instances == 9  # 1382.4 / 153.6, to the last digit


def test_half_the_days_take_twice_the_instances():
    whole = capacity(Demand(clips=1e7, seconds=5, days=2), CLIP, TRN2, Assumptions())
    half = capacity(Demand(clips=1e7, seconds=5, days=1), CLIP, TRN2, Assumptions())
    assert half.resources[0].instances == pytest.approx(2 * whole.resources[0].instances)
    assert half.read_bytes == whole.read_bytes


def test_a_clip_that_fits_no_core_is_refused():
    small = find_instance("trn1.2xlarge")
    large = ModelledClip(**{**vars(CLIP), "peak_bytes": 20 * 10**9})
    with pytest.raises(TrnconvError, match=r"device memory of trn1.2xlarge: 41 GB wanted"):
        capacity(DEMAND, large, small, Assumptions())
    shared = capacity(DEMAND, large, small, Assumptions(cores_per_clip=2))
    assert by_name(shared)["device memory"].demand == pytest.approx(20e9 + 2 * 3e8)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"reached": 0}, "greater than 0"), ({"usable": 1.5}, "a share, at most 1")],
)
def test_an_impossible_assumption_is_refused(options, message):
    with pytest.raises(TrnconvError, match=message):
        Assumptions(**options)


def test_no_clips_are_refused():
    with pytest.raises(TrnconvError, match="clips of 0: it is greater than 0"):
        Demand(clips=0, seconds=5)


def test_instances_name_their_source_and_an_unknown_one_is_refused():
    assert all(instance.source for instance in instances())
    with pytest.raises(UnsupportedError, match=r"There are trn2\.48xlarge"):
        find_instance("p5.48xlarge")


def test_spare_instances_are_there_before_something_fails():
    found = capacity(DEMAND, CLIP, TRN2, Assumptions(spare=0.2))
    assert found.instances == 2  # 120 / 128 / 0.8 = 1.17
    assert capacity(DEMAND, CLIP, TRN2, Assumptions(spare=0.05)).instances == 1
    with pytest.raises(TrnconvError, match="spare of 1"):
        Assumptions(spare=1)


def test_serving_by_hand():
    """6 s of a core, at half the modelled speed, on 128 cores of an instance."""
    alone = serving(CLIP, TRN2, Assumptions(), dollars_per_hour=64.0)
    assert (alone.at_once, alone.latency_s) == (128, 12.0)
    assert alone.videos_per_hour == 128 * 300
    assert alone.dollars_per_video == pytest.approx(64 / 38_400)
    shared = serving(CLIP, TRN2, Assumptions(cores_per_clip=8, spare=0.5), dollars_per_hour=64.0)
    assert (shared.at_once, shared.latency_s, shared.videos_per_hour) == (16, 1.5, 38_400)
    assert shared.dollars_per_video == pytest.approx(2 * 64 / 38_400)
    assert serving(CLIP, TRN2, Assumptions()).dollars_per_video is None
    with pytest.raises(TrnconvError, match="host memory"):
        serving(CLIP, TRN2, Assumptions(process_gb=20))


def test_the_object_store_of_ray_is_host_memory_too():
    def host(**options):
        found = capacity(DEMAND, CLIP, TRN2, Assumptions(**options))
        return {row.name: row.demand for row in found.memory}["host memory"]

    assert host(ray_store_gb=200.0) == host() + 200e9
    with pytest.raises(TrnconvError, match="ray_store_gb of -1"):
        Assumptions(ray_store_gb=-1.0)
