"""An exported folder needs neither this package nor NumPy, and computes what the planner's does."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from nkisim.machine import TRN2
from trnconv.errors import TrnconvError
from trnconv.export import exported_entry, problems_of, write_folder
from trnconv.export.entries import encoded
from trnconv.export.problems import ExportedProblem
from trnconv.export.template import conv
from trnconv.export.template.images import packed
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import epilogue_of
from trnconv.pytorch.backends.arrays import to_array
from trnconv.runtime.launch import prepare
from trnconv.runtime.plans import plans_for
from yardstick import limit_s

pytestmark = [pytest.mark.torch, pytest.mark.integrations]
SOURCE = Path(__file__).parents[3] / "src"
SHAPES = [
    {"input": [1, 8, 3, 6, 10], "weight": [12, 8, 3, 3, 3], "padding": [[2, 0], [1, 1], [1, 1]]},
    {"input": [2, 16, 4, 5, 9], "weight": [24, 16, 3, 1, 1], "stride": [2, 1, 1]},
    {"input": [1, 12, 1, 6, 8], "weight": [8, 3, 1, 3, 3], "groups": 4, "dilation": [1, 1, 2]},
    {"input": [1, 160, 1, 7, 7], "weight": [3, 160, 1, 3, 3], "padding": [0, 1, 1]},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("exported")
    shapes = root / "shapes.json"
    shapes.write_text(json.dumps(SHAPES))
    entries = [exported_entry(each) for each in problems_of(str(shapes), "", "decode", TRN2)]
    write_folder(root / "made", "exported_small", entries, "small shapes", "0")
    return root / "made"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A path with nkisim, and without this package: importing it fails."""
    path = tmp_path_factory.mktemp("path")
    (path / "nkisim").symlink_to(SOURCE / "nkisim")
    (path / "trnconv.py").write_text("raise ImportError('trnconv is not here')\n")
    return path


def run(program, elsewhere, **variables):
    environment = {**os.environ, "PYTHONPATH": str(elsewhere), **variables}
    return subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(240),
        cwd=elsewhere,
        env=environment,
    )


def test_its_tests_pass_without_this_package(folder, elsewhere):
    program = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests")]
    done = run(program, elsewhere, EXPORT_EVERY="1")
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(SHAPES) + 2} passed" in done.stdout


def test_it_imports_without_numpy_and_lists_its_problems(folder, elsewhere):
    program = f"""
import sys
sys.modules["numpy"] = sys.modules["nkisim"] = None
sys.path.insert(0, {str(folder / "torch-ext")!r})
import exported_small
print(len(exported_small.problems()), exported_small.ExportedConv3d.__name__)
"""
    done = run(["-W", "ignore", "-c", program], elsewhere)
    assert done.stdout.split() == [str(len(SHAPES)), "ExportedConv3d"], done.stderr[-2000:]


def test_the_layout_is_that_of_kernels(folder):
    tomllib = pytest.importorskip("tomllib")
    build = tomllib.loads((folder / "build.toml").read_text())
    assert build["general"]["edition"] == 5
    assert build["general"]["backends"] == ["neuron"]
    assert build["general"]["neuron"]["python-depends"] == ["nki"]
    assert "torch-noarch" in build
    package = folder / "torch-ext" / build["general"]["name"]
    assert (package / "__init__.py").is_file()
    assert "Nothing here has run on a device" in (folder / "README.md").read_text()


def test_its_conv3d_begins_as_torch_s():
    names = list(inspect.signature(conv.conv3d).parameters)
    assert names[:7] == "x weight bias stride padding dilation groups".split()


def random_filters(problem, seed):
    shape = problem.shape
    generator = torch.Generator().manual_seed(seed)
    sizes = (shape.c_out, shape.c_in // shape.groups, *shape.kernel)
    kind = getattr(torch, problem.dtype)
    w = torch.randn(sizes, generator=generator).to(kind)
    return w, torch.randn(shape.c_out, generator=generator).to(kind)


@pytest.mark.parametrize("activation", ["leaky_relu:0.5", "elu"])
def test_a_composed_activation_is_exported_with_its_slope(activation, elsewhere, tmp_path):
    """Sums are multiples of 32: exp(z) - 1 is -1 below 0, and all of them are exact."""
    shape = conv_shape((1, 2, 1, 1, 30), (3, 2, 1, 1, 5), padding=((0, 0), (0, 0), (2, 2)))
    problem = ConvProblem(shape, TRN2, epilogue=epilogue_of(activation, "none", ""))
    made = exported_entry(ExportedProblem(problem, ("line",)))
    write_folder(tmp_path / "made", "exported_line", [made], "a line", "0")
    named = {"elu": "elu(z)", "leaky_relu:0.5": "leaky_relu(z, 0.5)"}[activation]
    program = f"""
import sys
import nkisim
nkisim.install()
sys.path.insert(0, {str(tmp_path / "made" / "torch-ext")!r})
import exported_line as conv
import torch
torch.manual_seed(0)
x = (32 * torch.randint(-2, 3, (1, 2, 1, 1, 30))).bfloat16()
w, bias = torch.randint(-2, 3, (3, 2, 1, 1, 5)).bfloat16(), torch.tensor([32, 0, -32]).bfloat16()
z = torch.nn.functional.conv3d(x.float(), w.float(), bias.float(), padding=(0, 0, 2))
found = conv.conv3d(x, w, bias, padding=(0, 0, 2), activation={activation!r})
assert torch.equal(found, torch.nn.functional.{named}.bfloat16())
try:
    conv.conv3d(x, w, bias, padding=(0, 0, 2), activation="leaky_relu:0.25")
except ValueError:
    print("refused")
"""
    done = run(["-W", "ignore", "-c", program], elsewhere)
    assert done.stdout.split() == ["refused"], done.stderr[-2000:]


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_recipes_and_packing_of_wan_are_the_planner_s(step):
    """Convolutions of a decode at 720p: upsampled ones, in pieces, with residuals."""
    problems = problems_of("wan2.1", "720x1280", "decode", TRN2)
    assert len(problems) > 40
    for number, problem in enumerate(problems[::step]):
        document = json.loads(json.dumps(exported_entry(problem).document))
        planned = prepare(plans_for(problem.problem))
        assert document["recipe"] == encoded(planned.recipe)
        w, bias = random_filters(problem.problem, number)
        expected = planned.pack(to_array(w), to_array(bias))
        images = packed(document["arrays"], w, bias)
        for image, array in zip(images, expected, strict=True):
            assert to_array(image).dtype == array.dtype
            assert (to_array(image) == array).all(), problem.names


def test_a_folder_with_files_and_a_name_that_is_none_are_refused(folder):
    with pytest.raises(TrnconvError, match="not empty"):
        write_folder(folder, "exported_small", [], "", "0")
    with pytest.raises(TrnconvError, match="a name of a Python package"):
        write_folder(folder / "new", "no-name", [], "", "0")
