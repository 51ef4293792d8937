"""The example kernels: what they compute, and that they are plain NKI."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nkisim.examples
from nkisim.examples import EXAMPLES
from nkisim.lint.__main__ import main as lint
from nkisim.running.kernel import run
from yardstick import limit_s

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

FOLDER = Path(nkisim.examples.__file__).parent
SRC = FOLDER.parents[1]


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def file_of(name):
    return FOLDER / f"{name}.py"


@pytest.mark.parametrize("machine", ["trn1", "trn2"])
def test_matmul(rng, machine):
    a_t = rng.standard_normal((256, 512)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((256, 2048)).astype(ml_dtypes.bfloat16)
    product = run(EXAMPLES["matmul"].kernel, a_t, b, machine=machine).outputs
    exact = a_t.astype(np.float64).T @ b.astype(np.float64)
    terms = np.abs(a_t.astype(np.float64)).T @ np.abs(b.astype(np.float64))
    # 256 fp32 additions, then one rounding to the 8 bits of bfloat16.
    bound = 256 * 2.0**-24 * terms + 2.0**-8 * np.abs(exact)
    assert product.dtype == ml_dtypes.bfloat16
    assert np.all(np.abs(product.astype(np.float64) - exact) <= bound)


def test_vector_add(rng):
    x, y = (rng.standard_normal((256, 96)).astype(np.float32) for _ in range(2))
    assert np.array_equal(run(EXAMPLES["vector_add"].kernel, x, y).outputs, x + y)


def test_looped_copy(rng):
    x = rng.standard_normal((3 * 4 * 128, 32)).astype(np.float32)
    result = run(EXAMPLES["looped_copy"].kernel, x)
    assert np.array_equal(result.outputs, x)
    assert (result.trace.static_count, result.trace.executed_count) == (8, 24)


def test_sizes_worth_looking_at():
    arguments = {name: example.arguments for name, example in EXAMPLES.items()}
    assert [spec.shape for spec in arguments["matmul"]] == [(2048, 2048)] * 2
    trace = run(EXAMPLES["looped_copy"].kernel, *arguments["looped_copy"], values=False).trace
    assert trace.items[0].trips == 1000


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_imports_nki_alone(name):
    tree = ast.parse(file_of(name).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    imported = [alias.name for node in imports for alias in node.names]
    assert imported == ["nki.isa", "nki.language"]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_stays_inside_the_subset_that_nki_compiles(name, capsys):
    assert lint([str(file_of(name))]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


def run_python(program, *folders):
    path = os.pathsep.join(str(folder) for folder in (*folders, SRC))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=limit_s(60),
        env={**os.environ, "PYTHONPATH": path},
    ).stdout


def test_importing_the_examples_leaves_no_nki_behind():
    program = "import sys, nkisim.examples; print('nki' in sys.modules)"
    assert run_python(program) == "False\n"


def test_the_examples_are_bound_to_nkisim_also_beside_a_real_toolchain(tmp_path):
    package = tmp_path / "nki" / "language"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    program = (
        "import nki, nki.language\n"
        "from nkisim.examples import EXAMPLES\n"
        "import sys\n"
        "print(EXAMPLES['matmul'].kernel.__globals__['nl'].__name__, sys.modules['nki'] is nki)\n"
    )
    assert run_python(program, tmp_path) == "nkisim.language True\n"
