"""Kernels of aws-neuron/nki-library run in nkisim, unmodified, against that library's references.

What is compared is what the library's own tests compare, with their rule: every element of an
output differs from the reference by at most atol + rtol * (largest finite |reference|), and is
finite where the reference is. Integer outputs must be equal.
"""

import importlib
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

import nkisim

bfloat16 = ml_dtypes.bfloat16
PACKAGE = "nkilib_src"
RAN = "nkilib"  # the property of a test: a kernel's name, and the files that ran for it
RECORD = Path(__file__).parents[2] / "validation" / "nki_library.json"


def import_root():
    """The folder of NKILIB_SRC that makes `import nkilib_src` work."""
    package = Path(PACKAGE, "nkilib", "__init__.py")
    return next(Path(os.environ["NKILIB_SRC"]).rglob(str(package))).parents[2]


def jit_files():
    """The library's files that mention nki.jit, by their name without .py."""
    package = import_root() / PACKAGE / "nkilib"
    found = sorted(file for file in package.rglob("*.py") if "nki.jit" in file.read_text())
    return {str(file.relative_to(package).with_suffix("")): file for file in found}


def commit():
    """The library's commit: NKILIB_COMMIT, else what git says of the checkout."""
    stated = os.environ.get("NKILIB_COMMIT")
    if stated:
        return stated
    asked = ["git", "-C", os.environ["NKILIB_SRC"], "rev-parse", "HEAD"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def forget_modules(*, unless_of):
    """Make the next import a fresh one when the machine changes: modules may read it at import."""
    if _imported_for == [unless_of]:
        return
    _imported_for[:] = [unless_of]
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


_imported_for: list[str] = []


def wide(array):
    """A torch tensor as the library's references want it: narrow floats become float32."""
    import torch

    if not isinstance(array, np.ndarray):
        return array
    if array.dtype == np.uint32:
        array = array.astype(np.int32)
    elif array.dtype.kind != "f" and array.dtype.kind not in "iub":
        array = array.astype(np.float32)  # ml_dtypes
    tensor = torch.from_numpy(np.array(array))
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def narrow(array):
    """Like `wide`, but bfloat16 stays bfloat16, so that the reference rounds where it does."""
    import torch

    tensor = wide(array)
    if isinstance(array, np.ndarray) and array.dtype == bfloat16:
        return tensor.to(torch.bfloat16)
    return tensor


def widened(inputs, convert=wide):
    """Keyword arguments of a kernel as keyword arguments of its reference."""
    return {name: convert(value) for name, value in inputs.items()}


def as_arrays(outputs):
    """Tensors or arrays, alone, in a tuple or in a dictionary, as a list of NumPy arrays."""
    if isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    if not isinstance(outputs, (tuple, list)):
        outputs = (outputs,)
    return [_as_array(one) for one in outputs]


def _as_array(value):
    if isinstance(value, np.ndarray):
        return value
    value = value.detach()
    return (value.float() if value.dtype.is_floating_point else value).numpy()


@dataclass(frozen=True)
class Tolerance:
    """The library's bound on one output, in units of that output's largest |reference|."""

    rtol: float
    atol: float

    def share(self, reference):
        finite = reference[np.isfinite(reference)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
        return self.rtol + (self.atol / largest if largest else 0.0), largest


EXACT = Tolerance(0.0, 0.0)


@dataclass
class Entry:
    """What is known of one kernel on one machine, held to one tolerance.

    Errors and bounds are shares of the largest |reference|; those recorded belong to the case that
    came nearest to its bound. What nkisim refuses has neither.
    """

    cases: int = 0
    error: float = 0.0
    bound: float = 0.0
    used: float = -1.0  # error / bound
    dtypes: set = field(default_factory=set)
    cores: set = field(default_factory=set)
    notes: set = field(default_factory=set)
    refused: bool = False

    def add(self, error, bound):
        used = error / bound if bound else 0.0
        if used > self.used:
            self.used, self.error, self.bound = used, error, bound

    def row(self, kernel, machine, _, commit_hash):
        kinds = ", ".join(sorted(self.dtypes))
        cores = " and ".join(str(each) for each in sorted(self.cores))
        runs = f"inputs {kinds}; cores {cores}"
        return {
            "kernel": kernel,
            "commit": commit_hash,
            "cases": self.cases,
            "max_error": None if self.refused else float(f"{self.error:.3g}"),
            "tolerance": None if self.refused else float(f"{self.bound:.3g}"),
            "machine": machine,
            "note": "; ".join([runs, *sorted(self.notes)]),
        }


ENTRIES: dict[tuple[str, str, tuple[float, float]], Entry] = {}


def write_record():
    """Write what was compared, sorted, beside the other records of validation."""
    known = commit()
    rows = [entry.row(*key, known) for key, entry in sorted(ENTRIES.items())]
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(rows, indent=1) + "\n")


@dataclass(frozen=True)
class Case:
    """One comparison: how the kernel is launched and how near it must come.

    `racy` kernels have conflicting accesses of two cores: reported, and noted in the record.
    `helpers` are files of undecorated functions that run with the kernel.
    """

    inputs: dict
    tolerance: Tolerance = EXACT
    cores: int = 1
    note: str = ""
    convert_output: object = None  # before comparing
    racy: bool = False
    helpers: tuple = ()


class Library:
    """The library as one machine sees it."""

    def __init__(self, machine, properties):
        """`properties` are those of the test: what it compared reaches the summary by them."""
        self.machine = machine
        self.ran: set[str] = set()  # files of the library whose kernels ran
        self._properties = properties

    def module(self, name):
        return importlib.import_module(f"{PACKAGE}.nkilib.{name}")

    def run(self, kernel, case, *, values=True):
        launched = kernel if isinstance(kernel, nkisim.Kernel) else nkisim.jit(kernel)
        arguments = {
            k: v.copy() if isinstance(v, np.ndarray) else v for k, v in case.inputs.items()
        }
        options = {"machine": self.machine, "values": values, "lnc": case.cores}
        if case.racy:
            options["races"] = "report"
        with self._noting(launched):
            return nkisim.run(launched[case.cores], **options, **arguments)

    @contextmanager
    def _noting(self, launched):
        """Remember the file of the kernel and of every kernel that it calls."""
        call = nkisim.Kernel.__call__

        def noted(kernel, *args, **kwargs):
            self.ran.add(kernel.func.__code__.co_filename)
            return call(kernel, *args, **kwargs)

        self.ran.add(launched.func.__code__.co_filename)
        nkisim.Kernel.__call__ = noted
        try:
            yield
        finally:
            nkisim.Kernel.__call__ = call

    def check(self, name, kernel, case, reference):
        """Run the kernel, compare each output, and remember the outcome under `name`."""
        run = self.run(kernel, case)
        assert bool(run.races) == case.racy
        outputs = as_arrays(run.outputs)
        if case.convert_output is not None:
            outputs = case.convert_output(outputs)
        references = as_arrays(reference)
        assert len(outputs) == len(references)
        self.ran.update(str(jit_files()[helper]) for helper in case.helpers)
        entry = self._entry(name, case)
        if case.racy:
            entry.notes.add(f"{len(run.races)} unordered accesses of two cores reported")
        for output, expected in zip(outputs, references, strict=True):
            entry.add(*compare(output, expected, case.tolerance))
        files = {str(file): known for known, file in jit_files().items()}
        self._properties.append((RAN, (name, sorted(files[f] for f in self.ran if f in files))))

    def note_refusal(self, name, case, why):
        """Remember that nkisim refuses the kernel as it is, and why."""
        entry = self._entry(name, case)
        entry.refused = True
        entry.notes.add(f"refused: {why}")

    def _entry(self, name, case):
        bounds = (case.tolerance.rtol, case.tolerance.atol)
        entry = ENTRIES.setdefault((name, self.machine, bounds), Entry())
        entry.cases += 1
        entry.cores.add(case.cores)
        arrays = [value for value in case.inputs.values() if isinstance(value, np.ndarray)]
        entry.dtypes.update(str(array.dtype) for array in arrays)
        if case.note:
            entry.notes.add(case.note)
        return entry


def compare(output, expected, tolerance):
    """(error, bound), both relative to the largest |expected|; fails where error > bound."""
    assert output.shape == expected.shape
    if output.dtype.kind in "iub":
        np.testing.assert_array_equal(output, expected)
        return 0.0, 0.0
    output, expected = output.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(output), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(output[~finite], expected[~finite])
    bound, largest = tolerance.share(expected)
    worst = float(np.abs(output[finite] - expected[finite]).max()) if finite.any() else 0.0
    assert worst <= bound * largest if largest else worst <= tolerance.atol
    return (worst / largest if largest else worst), bound
