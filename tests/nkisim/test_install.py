"""nkisim.install(): which `nki` a process gets."""

import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import nkisim
import trnconv
from yardstick import limit_s

SRC = Path(__file__).parents[2] / "src"
OURS = f"nkisim {nkisim.__version__} (NKI 0.7)"


def run_python(program, *folders):
    """What a fresh interpreter prints, with folders before nkisim on its path."""
    path = os.pathsep.join(str(folder) for folder in (*folders, SRC))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture(autouse=True)
def nothing_installed():
    """Each test starts without nki; a test file that had installed nkisim gets it back."""
    before = nkisim.which()
    nkisim.uninstall()
    yield
    nkisim.uninstall()
    if before == OURS:
        nkisim.install()


@pytest.fixture
def real_nki(tmp_path):
    """A folder with something that looks like the real toolchain, which must not be imported."""
    package = tmp_path / "nki"
    (package / "language").mkdir(parents=True)
    (package / "__init__.py").write_text("print('the real nki was imported')\n")
    (package / "language" / "__init__.py").write_text("add = 'the real add'\n")
    metadata = tmp_path / "nki-0.6.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: nki\nVersion: 0.6.0\n")
    return tmp_path


def test_kernels_import_nki_as_on_the_device():
    nkisim.install()

    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl
    from nki.isa.constants import oob_mode
    from nki.typing import tensor

    assert nki.language is nl
    assert nki.isa is nisa
    assert nki.collectives is ncc
    assert nisa.oob_mode is oob_mode
    assert repr(tensor[128, 512]).endswith("tensor[128, 512]")

    @nki.jit
    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nl.store(out, tile)
        return out

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(nki.simulate(double)(x), 2 * x)
    np.testing.assert_array_equal(double(x), 2 * x)
    np.testing.assert_array_equal(nki.simulator.simulate_kernel(double, (x,), {}, 1), 2 * x)
    np.testing.assert_array_equal(
        nki.simulator.simulate_kernel(double.func, (), {"x": x}, None), 2 * x
    )


def test_install_twice_is_install_once_and_uninstall_restores():
    before = {name: module for name, module in sys.modules.items() if name.startswith("nki.")}
    assert nkisim.install() == nkisim.install() == nkisim.which() == OURS
    assert "nki.language" in sys.modules
    nkisim.uninstall()
    nkisim.uninstall()
    after = {name: module for name, module in sys.modules.items() if name.startswith("nki.")}
    assert after == before
    assert "nki" not in sys.modules
    assert "nkisim.install()" in nkisim.which()


def test_a_version_of_nki_is_chosen_and_kept_until_another_is_asked_for():
    import nkisim.isa as newest

    assert nkisim.install(version="0.6") == OURS.replace("0.7", "0.6") == nkisim.install()
    older = sys.modules["nki.isa"]
    assert not hasattr(older, "scalar_load")
    assert not hasattr(sys.modules["nki.language"], "int64")
    assert sys.modules["nki"].isa is older
    assert older.nc_matmul is newest.nc_matmul
    assert nkisim.install(version="0.7") == OURS
    assert sys.modules["nki.isa"] is newest
    with pytest.raises(nkisim.NkiValidationError, match=r"nkisim has 0.6, 0.7"):
        nkisim.install(version="0.5")
    nkisim.install(version="0.6")
    nkisim.uninstall()
    assert nkisim.install() == OURS


def test_install_says_which_one_is_in_use(caplog):
    with caplog.at_level(logging.INFO, logger="nkisim"):
        nkisim.install()
    assert caplog.messages == [f"import nki: {OURS}"]


def test_nothing_is_installed_by_importing_nkisim():
    program = """
        import importlib.util, nkisim
        print(importlib.util.find_spec("nki"), nkisim.which())
    """
    assert run_python(program) == ["None no nki: call nkisim.install()"]


def test_an_empty_package_called_nki_counts_as_absent(tmp_path):
    (tmp_path / "nki").mkdir()
    (tmp_path / "nki" / "__init__.py").write_text("__version__ = '0.0.1'\n")
    program = """
        import nki, sys
        empty = nki
        import nkisim
        print(nkisim.install())
        import nki, nki.isa
        print(nki is sys.modules["nkisim.nki"])
        nkisim.uninstall()
        print(sys.modules["nki"] is empty)
    """
    assert run_python(program, tmp_path) == [OURS, "True", "True"]


def test_a_real_toolchain_is_not_shadowed(real_nki):
    program = """
        import nkisim, sys
        print(nkisim.install())
        print("nki" in sys.modules)
        import nki.language
        print(nki.language.add)
        print(nkisim.install() == nkisim.which())
    """
    place = real_nki / "nki" / "__init__.py"
    assert run_python(program, real_nki) == [
        f"nki 0.6.0 at {place}",
        "False",
        "the real nki was imported",
        "the real add",
        "True",
    ]


@pytest.mark.parametrize("imported_first", [True, False])
def test_a_real_toolchain_is_replaced_when_asked_and_comes_back(real_nki, imported_first):
    program = f"""
        import logging, nkisim
        logging.basicConfig(format="%(levelname)s %(message)s", stream=__import__("sys").stdout)
        if {imported_first}:
            import nki.language
        print(nkisim.install(replace_real=True))
        import nki.language
        print(nki.language.add)
        nkisim.uninstall()
        import nki.language
        print(nki.language.add)
        print(nkisim.which())
    """
    lines = run_python(program, real_nki)
    real = f"nki 0.6.0 at {real_nki / 'nki' / '__init__.py'}"
    lines.remove("the real nki was imported")
    assert lines == [
        f"WARNING import nki: {OURS}, in place of {real}",
        f"{OURS}, in place of {real}",
        "nl.add",
        "the real add",
        real,
    ]


def test_a_module_nobody_has_is_not_found():
    program = """
        import nkisim
        nkisim.install()
        try:
            import nki.compiler
        except ModuleNotFoundError as error:
            print(error)
    """
    assert run_python(program) == ["No module named 'nki.compiler'"]


def test_importing_nkisim_is_fast_and_needs_no_torch():
    program = """
        import sys, time
        import numpy, ml_dtypes
        start = time.process_time()  # not wall-clock: the computer may be busy
        import nkisim
        print(time.process_time() - start, "torch" in sys.modules)
        print(nkisim.lint.lint.__name__, nkisim.lint.__name__)
    """
    first, second = run_python(program)
    seconds, has_torch = first.split()
    assert float(seconds) < limit_s(0.5)
    assert (has_torch, second) == ("False", "lint nkisim.lint")


def test_the_version_is_that_of_the_distribution():
    assert nkisim.__version__ == trnconv.__version__
