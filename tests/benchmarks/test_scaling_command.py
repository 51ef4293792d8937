"""The curve of `python -m benchmarks scaling`, from points made up by hand."""

import argparse
from dataclasses import replace

import pytest

from benchmarks import scaling
from benchmarks.scaling import Point

ONE = Point(
    cores=1,
    mesh="1 x 1",
    share=1.0,
    seconds=8.0,
    without_overlap=8.0,
    convolutions=7.0,
    boundaries=0.0,
    launches=0.0,
    attention=1.0,
    copies=0.0,
    halos=0.0,
    hidden=0.0,
    gathers=0.0,
    statistics=0.0,
    others=0.0,
    received_gb=0.0,
)
PARTS = {
    "convolutions": 3.75,
    "launches": 0.125,
    "attention": 0.5,
    "copies": 0.25,
    "halos": 0.5,
    "gathers": 0.0625,
    "statistics": 0.03125,
    "others": 0.0,
}
HIDDEN = 0.375
TWO = replace(
    ONE,
    cores=2,
    mesh="1 x 2",
    share=0.5,
    seconds=sum(PARTS.values()) - HIDDEN,
    without_overlap=5.5,
    boundaries=0.25,
    hidden=HIDDEN,
    received_gb=0.5,
    **PARTS,
)
FOUR = replace(
    TWO, cores=4, mesh="2 x 2", share=0.375, seconds=4.5, copies=0.25 + 4.5 - TWO.seconds
)


def test_the_faster_cut_is_taken():
    slower = replace(TWO, mesh="2 x 1", seconds=TWO.seconds + 1)
    assert scaling.curve([ONE, slower, TWO]) == [ONE, TWO]


def test_what_is_lost_is_all_that_an_even_share_would_not_take():
    lost = scaling.lost_to([ONE, TWO], 2)
    assert sum(lost.values()) == TWO.seconds - ONE.seconds / 2
    assert lost["halos that nothing hides"] == TWO.halos - TWO.hidden
    assert lost["boundaries convolved apart"] == TWO.boundaries + TWO.launches


def test_the_table_has_both_ways():
    line = scaling.table([ONE, TWO]).splitlines()[-1]
    assert line.split()[:5] == ["2", "1", "x", "2", "4.84"]
    assert line.split()[-1] == "5.50"
    assert "overlap" in scaling.table([ONE, TWO])


def test_the_bend_is_the_step_that_gains_least():
    """From two to four: nothing to speak of. Uneven bands are what it is lost to."""
    text = scaling.bend([ONE, TWO, FOUR])
    assert text.startswith("bends most from 2 to 4 cores: 1.08 times as fast, on 2 times the cores")
    assert text.endswith("uneven bands")
    assert scaling.bend([ONE]) == ""


def test_reasons_are_sorted_and_small_ones_left_out():
    (line,) = scaling.why([ONE, TWO]).splitlines()
    assert line.startswith("  2 cores lose to  boundaries convolved apart 8 %, ")
    assert "uneven bands" not in line


def test_readings_are_those_of_the_machine():
    parser = argparse.ArgumentParser()
    scaling.add_options(parser)
    assert parser.parse_args([]).reading == "default"
    assert parser.parse_args(["--reading", "pessimistic"]).reading == "pessimistic"
    with pytest.raises(SystemExit):
        parser.parse_args(["--reading", "hopeful"])


def test_meshes_are_those_that_read_least():
    """720p has 90 x 160 latents: of 32 ranks, 4 x 8 have 23 x 20, read with what is around."""
    assert scaling.meshes(32, (90, 160), 2) == [(4, 8), (2, 16)]
    assert scaling.meshes(1, (90, 160), 2) == [(1, 1)]
    assert scaling.meshes(4, (1, 160), 2) == [(1, 4)]


def test_ranks_are_pairs_and_one_core_is_one():
    parser = argparse.ArgumentParser()
    scaling.add_options(parser)
    jobs = scaling.accumulations_of(parser.parse_args([]), [1, 2, 64])
    assert [(job.mesh, job.lnc, job.cores) for job in jobs] == [
        ((1, 1), 1, 1),
        ((1, 1), 2, 2),
        ((4, 8), 2, 64),
    ]
    single = scaling.accumulations_of(parser.parse_args(["--lnc", "1"]), [64])
    assert [(job.lnc, job.cores) for job in single] == [(1, 64)]


def test_a_size_may_be_stated():
    size = scaling.size_of(scaling.find("wan2.1"), "81x1024x1792")
    assert (size.frames, size.height, size.width) == (81, 1024, 1792)


def test_an_instance_decodes_as_many_videos_as_have_room():
    assert scaling.videos_an_hour(ONE, 128) == 128 / 8.0 * 3600
    assert scaling.videos_an_hour(replace(ONE, cores=3), 8) == 2 / 8.0 * 3600
    text = scaling.throughput([ONE, replace(ONE, cores=200)], 128)
    assert text.startswith(
        "videos an hour on an instance of 128 cores, by cores of a video: 1: 57600;"
    )
