"""The picture of one instruction: the elements that it shows are those NumPy would touch."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.timing.report import svg_instruction
from nkisim.timing.report.access_runs import grid_of, runs_of

VIEWS = {
    "whole": lambda t: t,
    "columns": lambda t: t[:, 3:9],
    "rows": lambda t: t[4:8],
    "strided": lambda t: t[:, 1::5],
    "pattern": lambda t: t.ap([[24, 8], [12, 2], [4, 3]], offset=1),
    "backwards": lambda t: t.ap([[24, 8], [-2, 6]], offset=23),
    "repeated": lambda t: t.ap([[24, 8], [0, 2], [1, 4]], offset=2),
}


def instruction_of(view_of, region):
    def kernel(x):
        tensor = x if region is nl.hbm else nl.ndarray((8, 24), nl.float32, region)
        view = view_of(tensor)
        tile = nl.ndarray((view.shape[0], view.size // view.shape[0]), nl.float32)
        nisa.dma_copy(tile, view)

    spec = Spec((8, 24), "float32")
    (copy,) = run(kernel, spec, machine="trn2", values=False).trace.instructions()
    return copy


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("region", [nl.sbuf, nl.hbm], ids=["sbuf", "hbm"])
def test_runs_are_the_elements_of_the_view_in_order(name, region):
    read = instruction_of(VIEWS[name], region).reads[0]
    assert grid_of(read) == (8, 24)
    flat = [
        (24 * run.row + run.column + further, run.order + further)
        for run in runs_of(read)
        for further in range(run.elems)
    ]
    strides = [4 * stride for stride in read.layout.strides]
    numbers = np.arange(8 * 24, dtype=np.int32)
    view = np.lib.stride_tricks.as_strided(numbers[read.offset :], read.layout.shape, strides)
    assert [element for element, _ in flat] == view.reshape(-1).tolist()
    length = view[0].size if region is nl.sbuf else view.size
    assert [order for _, order in flat] == [i % length for i in range(view.size)]


def words_of(picture):
    root = ET.fromstring(picture)  # noqa: S314 (our own)
    return [element.text for element in root.iter() if element.text and element.text.strip()]


def test_small_tensors_are_numbered_and_named():
    words = words_of(svg_instruction(instruction_of(VIEWS["pattern"], nl.sbuf)))
    assert words.count("5") == 2 * 8  # the sixth element of each partition, read and written
    assert any("reads tensor (sbuf_0)[8, 2, 3] float32, of [8, 24] in sbuf" in w for w in words)
    assert any(w.startswith("pattern [[24, 8], [12, 2], [4, 3]] at element 1; 6 el") for w in words)
    assert any(w == "elements 1..21 of 24; partitions 0..7 of 8" for w in words)


def test_large_tensors_stay_small_pictures():
    def kernel(x):
        tile = nl.ndarray((128, 8, 512), nl.bfloat16)
        nisa.dma_copy(tile, x[:, :, 0::2])

    spec = Spec((128, 8, 1024), "bfloat16")
    (copy,) = run(kernel, spec, machine="trn2", values=False).trace.instructions()
    picture = svg_instruction(copy)
    assert len(picture) < 1_000_000
    assert any("the first 20,000 runs are drawn" in words for words in words_of(picture))


def test_a_loop_says_that_it_moves_on():
    def kernel(x):
        def body(i):
            nisa.dma_copy(tile, x[nl.ds(i, 1)])

        tile = nl.ndarray((1, 24), nl.float32)
        nl.fori_loop(0, 8, body)

    (copy,) = run(
        kernel, Spec((8, 24), "float32"), machine="trn2", lnc=1, values=False
    ).trace.instructions()
    words = words_of(svg_instruction(copy))
    assert any("+24 elements in each iteration" in w for w in words)
    assert "Inside of a hardware loop this is the first iteration." in words
