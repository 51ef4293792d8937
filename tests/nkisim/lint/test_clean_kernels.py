"""What NKI accepts raises no finding: a kernel that uses most of it, and the pieces one by one."""

from textwrap import dedent, indent

import pytest

from parser_lint import lint, lint_source

REALISTIC = '''
import math
from dataclasses import dataclass
from enum import Enum
from typing import Optional

BLOCK_ROWS = 2**40 // 2**37
LIMITS = {name: len(name) for name in ("rows", "columns")}


class Border(Enum):
    """How an edge is filled."""

    ZERO = 0
    REPEAT = 1


@dataclass(frozen=True)
class Tiling(nl.NKIObject):
    """How rows are cut."""

    rows: int
    columns: int
    border: Border = Border.ZERO

    def blocks(self, height):
        return math.ceil(height / self.rows)

    @staticmethod
    def widest(one, other):
        return max(one, other)


def scale_of(factor: Optional[float] = None, offset=0.0):
    assert offset >= 0.0, f"offset {offset} of {factor=} is negative"
    if factor == None:
        return 1.0
    return float(factor) if 0.0 < factor < 2.0 else 2.0


def pick(table, key):
    found = table.get(key)
    return found if found != None else 0


def copy_block(target, source, action):
    with nl.no_reorder():
        for step in range(2):
            if step == 1:
                continue
            action(dst=target, src=source)


def kernel(x: nl.ndarray, w, tiling: Tiling, factor=None):
    """Copies x block by block."""
    height, (width, _) = x.shape[0], (x.shape[1], None)
    total = first = 0
    sizes: list = [tiling.rows, tiling.columns]
    options = {"engine": "vector", "rows": tiling.rows}
    options["depth"] = 3
    sizes[0] = pick(options, "rows")
    sizes.append(width)
    scale = scale_of(factor, offset=1.0)
    out = nl.ndarray((height, width), dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    tile = nl.ndarray((tiling.rows, width), dtype=x.dtype, buffer=nl.sbuf)
    for block in range(tiling.blocks(height)):
        total += block * BLOCK_ROWS
        nisa.memset(dst=tile[0:1, :], value=scale)
        if block in (0, 1) and "vec" in options["engine"]:
            break
    while total > 3 and not first:
        total = total // 2

    def rows(row):
        window = x.ap([[width, tiling.rows], [1, width]], scalar_offset=row)
        nisa.dma_copy(dst=tile, src=window)

        def columns(column):
            nisa.tensor_copy(dst=tile[:, nl.ds(column, 1)], src=tile[:, 0:1])

        nl.fori_loop(0, width, columns)
        copy_block(out.ap([[width, tiling.rows], [1, width]], scalar_offset=row), tile,
                   nisa.dma_copy)

    nl.fori_loop(0, height, rows, step=2)

    def halve(register):
        nisa.register_load(dst=register, src=tile[0:1, 0:1])
        return register

    nl.while_loop(nisa.register_alloc(4), halve)
    if isinstance(w, Tiling) and tiling.border != Border.REPEAT:
        print(f"{sizes[-1]} {w!r}", Tiling.widest(1, 2))
    return out
'''


def test_a_realistic_kernel_is_clean_as_text():
    assert lint_source(REALISTIC, entry="kernel").findings == ()


def test_a_realistic_kernel_is_clean_once_imported(import_text):
    assert lint(import_text(REALISTIC).kernel).findings == ()


ACCEPTED = {
    "dict_item": 'd = {"a": 1}\nd["b"] = n',
    "list_item": "xs = [n]\nxs[0] = 2",
    "item_of_a_stranger": "n[0] = 2",
    "field": "n.field = 2",
    "tensor_compared_with_none": "return x == None or x != None",
    "in_list": "return n in [1, 2]",
    "in_a_stranger": "return 1 in n",
    "index_of_a_tensor": "return x[0:2, nl.ds(0, 2), ..., 1]",
    "arithmetic_on_a_shape": "return x.shape[0] * 2 + len(x.shape)",
    "rebound_tensor_parameter": "x = x.shape\nreturn x + (1,)",
    "name_with_two_kinds": "t = nl.load(x)\nif n:\n    t = 3\nreturn t + 1",
    "text": 's = "a" + "b"\nreturn s * 2',
    "negative_int32": "return -2147483647",
    "conversion": 'return f"{n!r} {n=}"',
    "break_of_a_static_loop": "for i in range(n):\n    break",
    "name_in_two_branches": (
        'if n:\n    t = nl.zeros((2, 2), nl.float32, name="t")\n'
        'else:\n    t = nl.zeros((2, 2), nl.float32, name="t")'
    ),
    "name_by_index": 'for i in range(n):\n    t = nl.zeros((2, 2), nl.float32, name=f"t{i}")',
    "register_compared_with_none": "r = nisa.register_alloc(n)\nreturn r == None",
    "numpy_constant": "return -np.inf",
    "global_numpy_array": "return nl.store(x, TABLE)",
    "annotation": 'y: "set[str] | Callable[..., int]" = n',
    "string_block": '"a remark"\n"another"',
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_what_nki_accepts_is_silent(body, import_text):
    header = "import numpy as np\nTABLE = np.zeros(3)\ndef kernel(n, x: nl.ndarray):\n"
    source = header + indent(dedent(body), "    ")
    assert lint_source(source, entry="kernel").findings == ()
    assert lint(import_text(source).kernel).findings == ()


def test_module_level_code_is_unrestricted():
    source = """
import os
try:
    LEVEL = int(os.environ.get("LEVEL", "0"))
except ValueError:
    LEVEL = 0
TAPS = [t for t in range(3)]
class Host:
    @property
    def taps(self):
        return sorted(set(TAPS))
def host():
    return Host()
@nki.jit
def kernel(x):
    return LEVEL
"""
    assert lint_source(source).findings == ()


def test_methods_only_python_calls_may_use_any_builtin(import_text):
    source = """
class Key(nl.NKIObject):
    def __hash__(self):
        return hash(self.value)
def kernel(n):
    return Key()
"""
    assert lint(import_text(source).kernel).findings == ()
    assert [f.rule for f in lint_source(source.replace("__hash__", "key")).findings] == ["B01"]
