"""Records, errors and tracebacks point at the user's own lines; tensors know their variables."""

import re
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim import nki
from nkisim.errors import (
    ArgumentError,
    MemoryLimitError,
    NkiValidationError,
    UnknownNameError,
    UnsupportedError,
)
from nkisim.running.kernel import Kernel, run, simulate
from nkisim.tensors.registers import VirtualRegister
from yardstick import limit_s

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

SRC = Path(__file__).parents[2] / "src"
ONE = np.ones((4, 8), np.float32)


def line_of(words):
    """The line of this file that ends with `# words`."""
    lines = Path(__file__).read_text().splitlines()
    (found,) = [n for n, line in enumerate(lines, start=1) if line.endswith(f"# {words}")]
    return found


def helper_tile(shape):
    return nl.ndarray(shape, nl.float32)


def busy(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = helper_tile(x.shape)
    several = [nl.ndarray(x.shape, nl.float32) for _ in range(2)]
    nisa.dma_copy(tile, x)  # load
    nisa.tensor_copy(  # first line of three
        several[1],
        tile,
    )
    with nl.no_reorder():
        nisa.memset(several[0], 0.0)  # ordered
    held = {"a": nl.zeros(x.shape, nl.float32)}  # zeros
    nisa.tensor_copy(held["a"], several[1])
    nisa.dma_copy(out, tile)
    return out


def test_instructions_know_file_line_and_function():
    instructions = list(run(busy, ONE, machine="trn2").trace.instructions())
    places = [one.place for one in instructions]
    assert {place.file for place in places} == {__file__}
    assert {place.function for place in places} == {"busy"}
    wanted = [line_of("load"), line_of("first line of three"), line_of("ordered"), line_of("zeros")]
    assert [place.line for place in places[:4]] == wanted
    assert places[0].source == "nisa.dma_copy(tile, x)  # load"


def test_tensors_are_called_by_the_variables_that_hold_them():
    instructions = list(run(busy, ONE, machine="trn2").trace.instructions())
    written = [one.writes[0].allocation.label for one in instructions]
    assert written[:4] == ["tile", "several", "several", "held"]
    assert instructions[0].reads[0].allocation.label == "x"
    assert written[-1] == "out"


def test_a_tensor_without_a_variable_keeps_its_name():
    def kernel(x):
        nisa.dma_copy(nl.ndarray(x.shape, x.dtype), x)
        nisa.dma_copy(nl.ndarray(x.shape, x.dtype, name="mine"), x)

    instructions = list(run(kernel, ONE, machine="trn2").trace.instructions())
    assert [one.writes[0].allocation.label for one in instructions] == ["sbuf_0", "mine"]


def test_a_loop_body_is_known_by_its_lines_too():
    def kernel(x):
        def body(_):
            nisa.memset(tile, 1.0)  # in a loop

        tile = nl.ndarray(x.shape, x.dtype)
        nl.fori_loop(0, 3, body)

    (memset,) = run(kernel, ONE, machine="trn2").trace.instructions()
    assert (memset.place.line, memset.place.function) == (line_of("in a loop"), "body")


def test_the_same_line_is_one_object_however_often_it_runs():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        for _ in range(3):
            nisa.memset(tile, 1.0)

    sites = {id(one.site) for one in run(kernel, ONE, machine="trn2").trace.instructions()}
    assert len(sites) == 1


def broken(x):
    tile = nl.ndarray((128, 64), nl.float32)
    nisa.nc_matmul(tile, tile, tile)  # sums in SBUF


@pytest.mark.parametrize(
    "launch",
    [
        lambda: run(broken, ONE, machine="trn2"),
        lambda: simulate(broken, machine="trn2")(ONE),
        lambda: run(Kernel(broken)[2], ONE, machine="trn2"),
        lambda: nki.jit(broken)(ONE),
    ],
)
def test_a_traceback_ends_at_the_kernels_line(launch):
    with pytest.raises(NkiValidationError) as caught:
        launch()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert (frames[-1].filename, frames[-1].lineno) == (__file__, line_of("sums in SBUF"))
    assert sum(frame.filename.startswith(str(SRC)) for frame in frames) <= 2
    assert (caught.value.file, caught.value.line) == (__file__, line_of("sums in SBUF"))
    assert f":{caught.value.line}, in broken\n          nisa.nc_matmul(" in str(caught.value)


def test_nkisims_own_frames_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("NKISIM_TRACEBACK", "full")
    with pytest.raises(NkiValidationError) as caught:
        run(broken, ONE, machine="trn2")
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename.endswith("errors.py")


def test_what_is_refused_before_a_kernel_runs_ends_at_the_call():
    with pytest.raises(NkiValidationError) as caught:
        run(busy, ONE, machine="trn9")  # no such machine
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (__file__, line_of("no such machine"))


def test_an_uncaught_error_ends_at_the_users_line(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import nkisim\nnkisim.install()\nimport nki.language as nl\n"
        "def kernel():\n    nl.ndarray(128, nl.float32)\nnkisim.run(kernel)\n"
    )
    run_it = subprocess.run(
        [sys.executable, str(file)],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
    )
    assert run_it.returncode == 1
    files = re.findall(r'File "([^"]+)", line (\d+)', run_it.stderr)
    assert files[-1] == (str(file), "5")
    assert "nl.ndarray: shape is the int 128" in run_it.stderr


def test_errors_of_the_users_own_code_are_left_alone():
    def kernel(x):
        def body(_):
            return {}["missing"]

        nl.fori_loop(0, 3, body)

    with pytest.raises(KeyError, match="missing"):
        run(kernel, ONE, machine="trn2")


def test_a_warning_names_the_users_line():
    def kernel(x):
        tile = nl.ndarray(x.shape, nl.float32)
        tile[2:4].ap([[8, 2]], offset=8)  # on a slice

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(kernel, ONE, machine="trn2")
    assert (caught[0].filename, caught[0].lineno) == (__file__, line_of("on a slice"))


def test_memory_that_does_not_fit_names_a_line_and_variables():
    def kernel(x):
        large = nl.ndarray((128, 40000), nl.float32)  # large
        wide = nl.ndarray((128, 30000), nl.float32)
        nisa.memset(large[:, 0:16], 0.0)
        nisa.memset(wide[:, 0:16], 0.0)
        nisa.tensor_copy(large[:, 0:16], wide[:, 0:16])

    with pytest.raises(MemoryLimitError, match=r"largest: 'large' .* 160000 B, 'wide'") as caught:
        run(kernel, ONE, machine="trn2", values=False)
    assert caught.value.line == line_of("large")


MISTAKES = [
    (lambda _: nl.ndarray(128, nl.float32), "shape is the int 128", r"write \(128,\)"),
    (lambda t: t.reshape(8), "shape is the int 8", "a tuple of integers"),
    (lambda t: t.permute(1), "dims is the int 1", "a tuple of integers"),
    (lambda t: t.__setitem__(..., 3.0), "the value is the float 3.0", "nisa.memset"),
    (lambda t: t.ap([64, 128]), r"pattern is the list \[64, 128\]", r"\[\[step, count\], ...\]"),
    (lambda t: t.ap([[8.0, 4], [1, 8]]), "pattern is", r"\[\[step, count\]"),
    (lambda t: t.slice(1, 0, 8 / 2), "end is the float 4.0", "divide with //"),
    (lambda t: t.ap([[8, 4], [1, 8]], offset="a"), "offset is the str 'a'", "an integer or None"),
    (lambda t: nisa.nc_matmul(t, t, t, tile_size=3), "tile_size is the int 3", "a tuple of int"),
    (lambda _: nl.fori_loop(0, 4, None), "body_fun is None", "a function"),
    (lambda _: nl.ndarray((4, 8), nl.float32, name=5), "name is the int 5", "a string"),
    (lambda t: nl.ndarray((4, 8), dtype=t), "dtype is", "a dtype of nki.language"),
    (lambda t: nisa.tensor_copy(t, 3.0), "src is a float", "nl.ndarray"),
    (lambda t: nisa.nc_matmul(t, t, t, acumulate=True), "'acumulate'", "did you mean accumulate"),
    (lambda t: nisa.activation(op=nl.exp, data=t), "'dst'", "returns no tensor"),
    (lambda t: nl.add(t, t, t, t, t), "too many positional", "x, y, dtype"),
    (list, "iterating", "tensor.shape"),
    (lambda t: t == 0.0, "==", "nl.equal"),
    (lambda t: t > 0, ">", "op=nl.greater"),
    (lambda t: t @ t, "@", "nisa.nc_matmul"),
]


@pytest.mark.parametrize(("mistake", "what", "remedy"), MISTAKES)
def test_mistakes_are_answered_in_words_of_nki(mistake, what, remedy):
    def kernel(x):
        mistake(nl.ndarray(x.shape, nl.float32))

    with pytest.raises(NkiValidationError, match=rf"(?s){what}.*{remedy}") as caught:
        run(kernel, ONE, machine="trn2")
    assert caught.value.file == __file__


@pytest.mark.parametrize(
    ("ask", "meant"),
    [
        (lambda: nisa.nc_matmull, "nc_matmul"),
        (lambda: nl.float31, "float32"),
        (lambda: nl.arange, r"tensor\[a:b\]"),
        (lambda: nki.jitt, "jit"),
        (lambda: helper_tile((4, 8)).reshap, "reshape"),
        (lambda: helper_tile((4, 8)).T, "nc_transpose"),
    ],
)
def test_names_that_nki_does_not_have(ask, meant):
    with pytest.raises(UnknownNameError, match=meant) as caught:
        run(ask, machine="trn2")
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(nl, "no_such_name")


def test_arguments_a_kernel_does_not_take():
    with pytest.raises(ArgumentError, match="missing a required argument: 'x'"):
        run(busy, machine="trn2")
    with pytest.raises(ArgumentError, match="did you mean x"):
        run(busy, xx=ONE, machine="trn2")


def test_remedies_fit_the_operand():
    def from_hbm(x):
        nisa.tensor_copy(helper_tile(x.shape), x)

    def to_hbm(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.memset(out, 0.0)

    assert remedy_of(broken) == "allocate dst with buffer=nl.psum"
    assert remedy_of(from_hbm) == "load it first: nisa.dma_copy into a tile in SBUF"
    after = ", and nisa.dma_copy the result to HBM after it"
    assert remedy_of(to_hbm) == f"allocate dst with buffer=nl.sbuf{after}"


def remedy_of(kernel):
    with pytest.raises(NkiValidationError) as caught:
        run(kernel, ONE, machine="trn2")
    return caught.value.remedy


def test_what_nkisim_refuses_to_model_points_too():
    with pytest.raises(UnsupportedError) as caught:
        VirtualRegister().known("a test")
    assert caught.value.file == __file__
