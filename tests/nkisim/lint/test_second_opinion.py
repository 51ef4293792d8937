"""A second opinion: klr-lang 0.0.12, an early public build of the parser NKI's grew from.

It is from July 2025, long before NKI 0.6, judges functions of plain arguments and knows no tensors.
So it is no judge; but where the two differ there has to be a reason, and a change on either side
has to be noticed. It runs in a process of its own because some constructs make it crash.
"""

import subprocess
import sys
from dataclasses import dataclass
from textwrap import dedent, indent

import pytest

from parser_lint import lint_file
from repetition import few
from yardstick import limit_s

pytest.importorskip("klr")

ACCEPTS, REFUSES, CRASHES = "accepts", "refuses", "crashes"
UNSTABLE = "accepts or crashes"

PROGRAM = """
import sys
from importlib import util
from klr.frontend import Kernel
spec = util.spec_from_file_location("kernels", sys.argv[1])
module = util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    kernel = Kernel(module.kernel)
    kernel.specialize(1)
    kernel.serialize(sys.argv[1] + ".klr")
except (RuntimeError, SyntaxError):
    print("refuses", flush=True)
else:
    print("accepts", flush=True)
"""


@dataclass(frozen=True)
class Opinion:
    """What klr and we say about a function body, and why we differ if we do."""

    name: str
    klr: str
    ours: str
    body: str
    why: str = ""
    before: str = ""  # module-level code
    signature: str = "n"

    @property
    def source(self):
        body = indent(dedent(self.body), "    ")
        return f"{dedent(self.before)}\ndef kernel({self.signature}):\n{body}\n"

    def __str__(self):
        return self.name


YOUNGER = "NKI learned it after this build of klr"
LENIENT = "this build of klr stops before the stage that refuses it"
UNINITIALISED = "klr accepts it, but reads a position nobody wrote and may crash on it"

AGREED = (
    Opinion("arithmetic", ACCEPTS, ACCEPTS, "x = n * 2 + 1\nreturn x // 3"),
    Opinion("docstring", ACCEPTS, ACCEPTS, '"A remark."\nreturn n'),
    Opinion("conditional", ACCEPTS, ACCEPTS, "return 1 if n > 2 else 0"),
    Opinion("chained_assignment", ACCEPTS, ACCEPTS, "a = b = n\nreturn a + b"),
    Opinion("nested_unpacking", ACCEPTS, ACCEPTS, "(a, (b, c)) = (1, (2, 3))\nreturn a"),
    Opinion("annotated", ACCEPTS, ACCEPTS, "x: int = 1\nreturn x"),
    Opinion("assertion", ACCEPTS, ACCEPTS, 'assert n > 0, "n is not positive"\nreturn n'),
    Opinion("break_continue", ACCEPTS, ACCEPTS, "for i in range(3):\n    break\nreturn n"),
    Opinion("list_item", ACCEPTS, ACCEPTS, "x = [1, 2]\nx[0] = 3\nreturn x[0]"),
    Opinion(
        "call", ACCEPTS, ACCEPTS, "return twice(n)", before="def twice(x):\n    return x + x\n"
    ),
    Opinion("any_keywords", ACCEPTS, ACCEPTS, "return n", signature="n, **options"),
    Opinion(
        "for_else", REFUSES, REFUSES, "for i in range(3):\n    n = 1\nelse:\n    n = 0\nreturn n"
    ),
    Opinion("matmul", REFUSES, REFUSES, "return n @ n"),
    Opinion("any_arguments", REFUSES, REFUSES, "return 1", signature="*n"),
    Opinion("list_comprehension", REFUSES, REFUSES, "x = [i for i in range(n)]\nreturn x"),
    Opinion("lambda", REFUSES, REFUSES, "f = lambda x: x\nreturn f(n)"),
    Opinion("walrus", REFUSES, REFUSES, "x = (y := n)\nreturn y"),
    Opinion("yield", REFUSES, REFUSES, "yield n"),
    Opinion("try", REFUSES, REFUSES, "try:\n    n = 1\nfinally:\n    n = 2\nreturn n"),
    Opinion("raise", REFUSES, REFUSES, 'raise ValueError("n")'),
    Opinion("del", REFUSES, REFUSES, "x = n\ndel x\nreturn n"),
    Opinion("import", REFUSES, REFUSES, "import math\nreturn n"),
    Opinion("global", REFUSES, REFUSES, "global z\nz = 1\nreturn n"),
    Opinion("match", REFUSES, REFUSES, "match n:\n    case 1:\n        n = 2\nreturn n"),
    Opinion("class_inside", REFUSES, REFUSES, "class A:\n    pass\nreturn n"),
    Opinion("inner_function", REFUSES, REFUSES, "def f(x):\n    return x\nreturn f(n)"),
    Opinion("large_integer", REFUSES, REFUSES, "return n + 4294967296"),
    Opinion("smallest_integer", REFUSES, REFUSES, "return n - 2147483648"),
    Opinion("set", REFUSES, REFUSES, "x = {1, 2}\nreturn n"),
    Opinion("integer_key", REFUSES, REFUSES, "x = {1: 2}\nreturn n"),
    Opinion("format", REFUSES, REFUSES, 'x = f"{n:03d}"\nreturn n'),
    Opinion("other_context", REFUSES, REFUSES, "with n():\n    pass\nreturn n"),
    Opinion("starred_target", REFUSES, REFUSES, "a, *b = (1, 2, 3)\nreturn n"),
    Opinion(
        "reached_violation",
        REFUSES,
        REFUSES,
        "return bad(n)",
        before="def bad(x):\n    return [i for i in x]\n",
    ),
)

DIFFERENT = (
    Opinion("while", REFUSES, ACCEPTS, "while n < 3:\n    n = n + 1\nreturn n", YOUNGER),
    Opinion("f_string", REFUSES, ACCEPTS, 'x = f"{n}"\nreturn n', YOUNGER),
    Opinion("dict", REFUSES, ACCEPTS, 'x = {"a": 1}\nreturn n', YOUNGER),
    Opinion("empty_list", REFUSES, ACCEPTS, "x = []\nreturn n", YOUNGER),
    Opinion("empty_string", REFUSES, ACCEPTS, 'x = ""\nreturn n', YOUNGER),
    Opinion("bare_return", REFUSES, ACCEPTS, "return", YOUNGER),
    Opinion("in_tuple", REFUSES, ACCEPTS, "return n in (1, 2)", YOUNGER),
    Opinion(
        "is_none",
        REFUSES,
        ACCEPTS,
        "return n is None",
        "late parsers take it as `==`; sources contradict each other, so we warn (X05)",
    ),
    Opinion("two_loop_names", ACCEPTS, REFUSES, "for a, b in n:\n    pass\nreturn n", LENIENT),
    Opinion("unknown_builtin", ACCEPTS, REFUSES, "return sorted(n)", LENIENT),
    Opinion("generator", ACCEPTS, REFUSES, "return min(i for i in (1, 2))", LENIENT),
    Opinion("star_in_call", ACCEPTS, REFUSES, "return max(*n)", LENIENT),
    Opinion("range_kept", ACCEPTS, REFUSES, "x = range(n)\nreturn n", LENIENT),
    Opinion(
        "keyword_only", ACCEPTS, REFUSES, "return n", "the 0.3 notes forbid it", "", "n, *, m=1"
    ),
    Opinion("position_only", ACCEPTS, REFUSES, "return n", "the 0.3 notes forbid it", "", "n, /"),
    Opinion(
        "decorator",
        ACCEPTS,
        REFUSES,
        "return helper(n)",
        "this build of klr does not look at decorators",
        before="def same(f):\n    return f\n@same\ndef helper(x):\n    return x\n",
    ),
    Opinion("boolean", UNSTABLE, ACCEPTS, "return n or 3 and not n", UNINITIALISED),
    Opinion("chained_comparison", UNSTABLE, ACCEPTS, "return 0 < n < 3", UNINITIALISED),
    Opinion("in_place", UNSTABLE, ACCEPTS, "n += 1\nreturn n", UNINITIALISED),
    Opinion("double_star_in_call", CRASHES, REFUSES, "return max(**n)", "klr refuses it later"),
)

OPINIONS = (*AGREED, *DIFFERENT)


def opinion_of_klr(file):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
    )
    if run.returncode < 0:
        return CRASHES
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@few(20)
@pytest.mark.parametrize("opinion", OPINIONS, ids=str)
def test_opinions_are_as_recorded(opinion, tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(opinion.source)
    ours = ACCEPTS if lint_file(file, entry="kernel").ok else REFUSES
    assert ours == opinion.ours
    assert opinion_of_klr(file) in opinion.klr.split(" or ")


def test_every_difference_has_a_reason_and_only_differences_do():
    assert all(opinion.klr == opinion.ours and not opinion.why for opinion in AGREED)
    assert all(opinion.klr != opinion.ours and opinion.why for opinion in DIFFERENT)
