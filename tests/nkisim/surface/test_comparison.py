"""The public names of NKI 0.6 and 0.7: all there, with NKI's parameters, or refused by name."""

import enum
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nkisim.collectives as ncc
import nkisim.isa as nisa
import nkisim.language as nl
from nkisim import surface
from nkisim.errors import UnsupportedError
from nkisim.refusal import Refusal, refusal_of, refused
from nkisim.surface import comparison
from nkisim.surface.comparison import Row, offered, parameters_of
from nkisim.surface.golden import Name
from yardstick import limit_s

SRC = Path(__file__).parents[3] / "src"
NAMES = {name.name: name for name in surface.golden_names()}
ROWS = {row.name: row for row in surface.compare()}
REFUSED = [row.name for row in ROWS.values() if row.status == "refused"]
REFUSED.remove("nki.language.dynamic_range")  # by 0.7 alone: tests/nkisim/running/test_loop_nest.py


def required_count(signature):
    return sum(p.default is p.empty for p in signature.parameters.values())


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_nothing_is_missing(version):
    assert [row for row in surface.compare(version) if row.status == "missing"] == []


@pytest.mark.parametrize(
    ("version", "counts"), [("0.6", (2, 134, 67, 12)), ("0.7", (2, 135, 70, 13))]
)
def test_the_table_covers_the_four_modules(version, counts):
    prefixes = ("nki.", "nki.language.", "nki.isa.", "nki.collectives.")
    names = [name.name for name in surface.golden_names(version)]
    for prefix, count in zip(prefixes, counts, strict=True):
        top = [name for name in names if re.fullmatch(re.escape(prefix) + r"\w+", name)]
        assert len(top) == count, prefix


def test_the_table_of_0_7_says_what_was_carried_over():
    carried = {name.name for name in NAMES.values() if name.carried_over}
    seen = {name.name for name in NAMES.values() if name.seen}
    older = {name.name for name in surface.golden_names("0.6")}
    assert carried | seen == set(NAMES)
    assert not carried & seen
    assert carried < older
    new = seen - older
    assert {"nki.isa.NkiScalar", "nki.language.int64", "nki.isa.scalar_store"} <= new
    assert ROWS["nki.language.load"].note == "(src, dtype=None) carried over from 0.6"
    assert "carried over" not in ROWS["nki.isa.nc_matmul"].note


def test_the_modules_of_0_6_lack_what_0_7_brought():
    older = {name.name for name in surface.golden_names("0.6")}
    for name in set(NAMES) - older:
        offered(name)
        if "framework" not in name:
            with pytest.raises(AttributeError):
                offered(name, "0.6")


@pytest.mark.parametrize("name", [n for n, e in NAMES.items() if e.kind == "function"])
def test_names_order_and_kinds_of_parameters_are_nkis(name):
    # Independent of the comparison code: straight from the signature.
    wanted = [each.partition("=")[0].lstrip("*") for each in NAMES[name].parameters]
    ours = inspect.signature(offered(name)).parameters
    assert list(ours) == wanted
    variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    starred = [each.startswith("*") for each in NAMES[name].parameters]
    assert [parameter.kind in variable for parameter in ours.values()] == starred
    assert not any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in ours.values())


@pytest.mark.parametrize("name", [n for n, e in NAMES.items() if e.kind == "function"])
def test_parameters_have_a_default_where_nki_has_one(name):
    ours = inspect.signature(offered(name)).parameters
    with_default = [each.partition("=")[0] for each in NAMES[name].parameters if "=" in each]
    assert [p.name for p in ours.values() if p.default is not p.empty] == with_default


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_function_raises_and_names_itself(name):
    function = offered(name)
    arguments = [None] * required_count(inspect.signature(function))
    with pytest.raises(UnsupportedError) as caught:
        function(*arguments)
    short = name.rpartition(".")[2]
    assert re.search(rf"\b(nl|nisa|ncc)\.{short}\b", str(caught.value))
    assert caught.value.limit
    assert caught.value.remedy


def test_what_is_refused_is_random_or_collective_or_a_division():
    # Whoever refuses one more says so here, and why on the page of limits.
    random = {"nki.language.rand", "nki.language.random_seed", "nki.language.dropout"}
    division = {"nki.language.divide", "nki.language.mod", "nki.language.fmod"}
    device_random = {
        f"nki.isa.{name}"
        for name in ("rng", "dropout", "set_rng_seed", "rand_set_state", "rand_get_state", "rand2")
    }
    collective = {name for name in NAMES if name.startswith("nki.collectives.")}
    collective -= {"nki.collectives.ReplicaGroup"}
    assert set(REFUSED) == random | division | device_random | collective


def test_enum_members_have_nkis_values():
    assert {each.name: each.value for each in nisa.engine} == {
        "tensor": 1,
        "vector": 5,
        "scalar": 2,
        "gpsimd": 3,
        "dma": 4,
        "sync": 6,
        "unknown": 0,
    }
    for name, entry in NAMES.items():
        if entry.kind == "enum":
            members = {each.rpartition(".")[2] for each in NAMES if each.startswith(f"{name}.")}
            assert issubclass(offered(name), enum.Enum)
            assert set(offered(name).__members__) == members


def test_dtypes_are_strings_and_buffers_are_regions():
    assert all(isinstance(offered(n), str) for n, e in NAMES.items() if e.type == "DType")
    assert nl.hbm is nl.private_hbm
    assert nl.bool == nl.bool_
    assert (nl.float8_e4m3fn_x4, nl.bfloat16) == ("float8_e4m3fn_x4", "bfloat16")


def test_tile_size_is_readable_outside_of_kernels():
    members = [n for n in NAMES if n.startswith("nki.language.tile_size.")]
    assert len(members) == 14
    assert all(isinstance(offered(name), int) for name in members)


def test_exported_names_are_nkis_and_two_that_kernels_need():
    for module, prefix in ((nl, "nki.language"), (nisa, "nki.isa"), (ncc, "nki.collectives")):
        top = {n.rpartition(".")[2] for n in NAMES if re.fullmatch(rf"{prefix}\.\w+", n)}
        assert set(module.__all__) - top <= {"bool", "constants"}
        assert top <= set(module.__all__)


def example(x, y, dtype=None, *rest, engine=nisa.engine.unknown, buffer=nl.sbuf, kind="uint8"):
    """A signature with one of each kind of default."""


def test_parameters_are_written_as_the_stubs_write_them():
    assert parameters_of(example) == (
        *("x", "y", "dtype=None", "*rest"),
        *("engine=engine.unknown", "buffer=sbuf", "kind=uint8"),
    )
    assert parameters_of(nl.add) == ("x", "y", "dtype=None")
    assert parameters_of(nl.NkiTensor.slice, method=True) == ("dim", "start", "end", "step=1")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        (Name("nki.language.nothing", "function", ()), "does not have it"),
        (Name("nki.language.add", "function", ("y", "x", "dtype=None")), "differ"),
        (Name("nki.language.add", "function", ("x", "y", "dtype=1")), "differ"),
        (Name("nki.language.add", "function", ("x", "y")), "differ"),
        (Name("nki.language.sbuf", "value", type="DType"), "is not a DType"),
        (Name("nki.isa.engine.dma", "member", value="5"), "differs from 5"),
        (Name("nki.language.tile_size", "class"), "is not a class"),
    ],
)
def test_the_comparison_finds_differences(name, note, monkeypatch):
    monkeypatch.setattr(comparison, "golden_names", lambda _: (name,))
    (row,) = surface.compare()
    assert row.status == "missing"
    assert note in row.note


def test_an_undocumented_default_may_be_anything_but_must_be_there(monkeypatch):
    fits = Name("nki.language.add", "function", ("x", "y", "dtype=..."))
    lacks = Name("nki.language.add", "function", ("x", "y=...", "dtype=None"))
    monkeypatch.setattr(comparison, "golden_names", lambda _: (fits, lacks))
    assert [row.status for row in surface.compare()] == ["implemented", "missing"]


def test_the_table_ends_with_the_counts():
    rows = (Row("nki.a", "implemented", "(x)"), Row("nki.bc", "refused", "why"))
    assert surface.table(rows).splitlines() == [
        "name    status       note",
        "nki.a   implemented  (x)",
        "nki.bc  refused      why",
        "implemented 1, refused 1, missing 0",
    ]


def test_the_command_prints_the_table():
    command = [sys.executable, "-W", "error", "-m", "nkisim", "surface"]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    counts = re.fullmatch(r"implemented (\d+), refused (\d+), missing 0", lines[-1])
    assert counts
    assert int(counts[1]) + int(counts[2]) == len(NAMES) == len(lines) - 2


@refused("nl.example", "there is no such thing", "do without")
def refused_example(x: int, y: float = 1.0) -> None:
    """What it would do."""


def test_a_refused_function_keeps_its_signature_and_tells_why():
    assert str(inspect.signature(refused_example)) == "(x: int, y: float = 1.0) -> None"
    assert refused_example.__doc__ == "What it would do."
    assert refusal_of(refused_example) == Refusal(
        "nl.example", "there is no such thing", "do without"
    )
    assert refusal_of(nl.add) is None
    with pytest.raises(UnsupportedError) as caught:
        refused_example(1)
    message, _, place = str(caught.value).partition("\n  at:     ")
    assert message == (
        "nl.example: this function is not modelled\n"
        "  limit:  there is no such thing\n"
        "  remedy: do without"
    )
    assert place.endswith("\n          refused_example(1)")


def test_a_replica_group_names_a_rank_once():
    assert ncc.ReplicaGroup([[0, 1], [2, 3]]).replica_groups == [[0, 1], [2, 3]]
    with pytest.raises(nisa.NkiValidationError, match="name a rank twice"):
        ncc.ReplicaGroup([[0, 1], [1, 2]])
