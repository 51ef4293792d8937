"""Sizes that were not traced, held against those that were."""

from itertools import permutations

import pytest

from trnconv.model_plan.traces import model_trace, planned_sizes
from trnconv.models import Size, find
from trnconv.traces import at_size, shipped

SEVERAL = [
    "wan2.1",
    "wan2.2-5b",
    "hunyuanvideo1.5",
    "ltx-video-0.9.7",
    "ltx-2",
    "qwen-image",
    "taew2.1",
    "turbo-vaed-hunyuan",
]
PAIRS = [
    (name, before, after, phase)
    for name in SEVERAL
    for before, after in permutations(planned_sizes(find(name)), 2)
    for phase in find(name).phases
]


def bytes_of(operations):
    return sum(calls * operation.moved_bytes for operation, calls in operations)


@pytest.mark.parametrize(("name", "before", "after", "phase"), PAIRS)
def test_convolutions_are_those_that_were_traced(name, before, after, phase):
    entry = find(name)
    found = at_size(shipped(entry, before, phase), entry, after)
    assert found.works == shipped(entry, after, phase).works


@pytest.mark.parametrize(("name", "before", "after", "phase"), PAIRS)
def test_all_else_moves_as_many_bytes_nearly(name, before, after, phase):
    """HunyuanVideo 1.5 fills its mask row by row: those rows do not scale."""
    entry = find(name)
    found = at_size(shipped(entry, before, phase), entry, after)
    seen = shipped(entry, after, phase)
    within = 0.08 if name == "hunyuanvideo1.5" else 0.01
    assert bytes_of(found.operations) == pytest.approx(bytes_of(seen.operations), rel=within)
    assert found.peak_bytes == pytest.approx(seen.peak_bytes, rel=0.15)


def test_fewer_frames_are_fewer_steady_chunks():
    entry = find("wan2.1")
    found = model_trace(entry, Size("", 49, 480, 832), "decode")
    assert "scaled from 480x832x81" in found.source
    calls = {work.module: 0 for work, _ in found.works}
    for work, times in found.works:
        calls[work.module] += times
    assert calls["decoder.conv_in"] == 13  # latent frames
    assert calls["post_quant_conv"] == 1
    whole = next(work for work, _ in found.works if work.module == "post_quant_conv")
    assert whole.shape.size == (13, 60, 104)


@pytest.mark.parametrize("phase", ["encode", "decode"])
def test_frames_that_are_images_are_as_many_as_frames(phase):
    """TAEHV pools and grows frames: a latent frame is four images, two, or one."""
    entry = find("taew2.1")
    found = model_trace(entry, Size("", 49, 720, 1280), phase)
    seen = shipped(entry, entry.production, phase)
    images = [
        (work.shape.batch * work.shape.size[0], before.shape.batch * before.shape.size[0])
        for (work, _), (before, _) in zip(found.works, seen.works, strict=True)
    ]
    assert set(images) == {(13, 21), (26, 42), (52, 84)}
    part = bytes_of(found.operations) / bytes_of(seen.operations)
    assert part == pytest.approx(13 / 21, rel=0.01)


def test_a_call_for_each_frame_is_made_for_each_frame():
    entry = find("turbo-vaed-ltx")
    found = model_trace(entry, Size("", 81, 512, 704), "decode")
    assert 81 in {calls for _, calls in found.works}
    assert sum(calls for _, calls in found.works) == 200 - 161 + 81


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("vidtok", Size("", 17, 128, 128)),  # a line of frames for each pixel
        ("allegro", Size("", 88, 480, 832)),  # tiles of 320 x 320
        ("cogvideox", Size("", 81, 480, 720)),  # two latent frames at a time
        ("hunyuanvideo", Size("", 65, 720, 1280)),  # overlapping pieces of time
        ("wan2.1", Size("", 5, 480, 832)),  # no steady chunk
    ],
)
def test_what_does_not_follow_is_not_answered(name, size):
    entry = find(name)
    assert at_size(shipped(entry, entry.production, "decode"), entry, size) is None


@pytest.mark.diffusers
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("wan2.1", Size("", 49, 480, 832)),
        ("taew2.1", Size("", 49, 480, 832)),
        ("turbo-vaed-ltx", Size("", 81, 512, 704)),
    ],
)
def test_a_plan_of_another_size_is_that_of_a_run_at_that_size(name, size):
    """Every convolution and all else, priced; a run on the meta device is the other side."""
    pytest.importorskip("torch")
    from trnconv.model_plan import PlanOptions, Prices, plan_trace
    from trnconv.pytorch.model_tracer import trace_entry

    entry = find(name)
    options, prices = PlanOptions(), Prices()
    scaled, run = (
        plan_trace(seen, size, options, prices).whole_seconds
        for seen in (model_trace(entry, size, "decode"), trace_entry(entry, size, "decode"))
    )
    assert scaled == pytest.approx(run, rel=0.02)
