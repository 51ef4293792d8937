"""Seeded violations: one tiny kernel for each way to leave the subset.

The offending line carries the comment `# here`. Each is found once, on its line, both from the text
and from the imported function.
"""

from dataclasses import dataclass
from textwrap import dedent

import pytest

from nkisim.lint import rules
from parser_lint import lint, lint_source


@dataclass(frozen=True)
class Violation:
    """A text with a function `kernel` that breaks one rule on one line."""

    name: str
    rule: str
    text: str
    also: str = ""  # a rule that the construct cannot help breaking too
    can_be_imported: bool = True

    @property
    def source(self):
        return dedent(self.text).strip() + "\n"

    @property
    def line(self):
        marked = [n for n, line in enumerate(self.source.splitlines(), 1) if "# here" in line]
        assert len(marked) == 1, f"{self.name} marks {len(marked)} lines"
        return marked[0]

    def __str__(self):
        return self.name


def statement(name, rule, body, also=""):
    """A violation in the body of a kernel of `n`, an integer, and `x`, a tensor."""
    lines = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    return Violation(name, rule, f"def kernel(n, x: nl.ndarray):\n{lines}\n", also)


STATEMENTS = (
    statement("two_mutated_targets", "S02", "a = [0]\nb = [0]\na[0] = b[0] = n  # here"),
    statement("attribute_among_unpacked", "S02", "n.a, b = 1, 2  # here\nreturn b"),
    statement("attribute_deep_among_unpacked", "S02", "a, (n.b, c) = 1, (2, 3)  # here"),
    statement("starred_target", "S02", "a, *b = n  # here\nreturn a"),
    statement("for_else", "S05", "for i in range(n):  # here\n    pass\nelse:\n    pass"),
    statement("while_else", "S05", "while n < 3:  # here\n    n += 1\nelse:\n    pass"),
    statement("two_loop_names", "S06", "for a, b in ((1, 2), (3, 4)):  # here\n    pass"),
    statement("break", "S07", "for i in nl.dynamic_range(n):\n    break  # here", also="L02"),
    statement("continue", "S07", "for i in nl.dynamic_range(n):\n    continue  # here", also="L02"),
    statement("return", "S07", "for i in nl.dynamic_range(n):\n    return n  # here", also="L02"),
    statement(
        "break_of_register_loop",
        "S07",
        "r = nisa.register_alloc(n)\nwhile r:\n    break  # here",
        also="L03",
    ),
    statement("with_file", "S08", "with n():  # here\n    pass"),
    statement("with_as", "S08", "with nl.no_reorder() as order:  # here\n    pass"),
    statement("two_contexts", "S08", "with nl.no_reorder(), nl.no_reorder():  # here\n    pass"),
    statement("inner_function", "S09", "def twice(v):  # here\n    return v + v\nreturn twice(n)"),
    statement("class_inside", "S10", "class A:  # here\n    pass"),
    statement("del", "S10", "y = n\ndel y  # here"),
    statement("try", "S10", "try:  # here\n    pass\nfinally:\n    pass"),
    statement("raise", "S10", "raise ValueError(n)  # here"),
    statement("import", "S10", "import math  # here"),
    statement("import_from", "S10", "from math import pi  # here"),
    statement("global", "S10", "global z  # here\nz = n"),
    statement("match", "S10", "match n:  # here\n    case 1:\n        pass"),
    Violation("async", "S10", "async def kernel(n):  # here\n    return n"),
    Violation(
        "nonlocal",
        "S10",
        """
        def kernel(n):
            total = 0
            def body(i):
                nonlocal total  # here
                total = 1
            nl.fori_loop(0, n, body)
        """,
    ),
    statement("tensor_item", "S11", "t = nl.zeros((2, 2), nl.float32)\nt[0, 0] = n  # here"),
    statement("parameter_item", "S11", "x[0, 0] = n  # here"),
    statement("view_item", "S11", "y = x.reshape((2, 2))[0]\ny[0] = n  # here"),
)

EXPRESSIONS = (
    statement("large_integer", "X01", "return n + 2147483648  # here"),
    statement("smallest_integer", "X01", "return -2147483648  # here"),
    statement("bytes", "X01", 'return b"ab"  # here'),
    statement("matmul", "X03", "return n @ n  # here"),
    statement("matmul_in_place", "X03", "n @= n  # here"),
    statement("tensor_sum", "X04", "t = nl.load(x)\nreturn t * 2.0  # here"),
    statement("tensor_negated", "X04", "return -x  # here"),
    statement("tensor_in_place", "X04", "x += 1  # here"),
    statement("tensor_item_in_place", "X04", "x[0] += 1  # here"),
    statement("tensor_order", "X04", "return x < 3  # here"),
    statement("operand_sum", "X04", "nisa.tensor_copy(dst=n, src=x)\nreturn n + n  # here"),
    statement("is_none", "X05", "if n is None:  # here\n    pass"),
    statement("is_not_none", "X05", "if n is not None:  # here\n    pass"),
    statement("is", "X06", "return n is x  # here"),
    statement("in_dict", "X07", 'd = {"a": 1}\nreturn "a" in d  # here'),
    statement("not_in_dict", "X07", 'd = dict()\nreturn "a" not in d  # here'),
    statement("format", "X09", 'return f"{n:03d}"  # here'),
    statement("set", "X10", "return {1, 2}  # here"),
    statement("integer_key", "X10", "return {1: n}  # here"),
    statement("name_as_key", "X10", "return {n: 1}  # here"),
    statement("dict_in_dict", "X10", "return {**n}  # here"),
    statement("character", "X11", 's = "abc"\nreturn s[0]  # here'),
    statement("backwards", "X12", "return n[::-1]  # here"),
    statement("list_comprehension", "X13", "return [i for i in range(n)]  # here"),
    statement("dict_comprehension", "X13", "return {i: i for i in n}  # here"),
    statement("generator", "X13", "return max(i for i in n)  # here"),
    statement("lambda", "X13", "return lambda v: v  # here"),
    statement("walrus", "X13", "return (m := n)  # here"),
    statement("yield", "X13", "yield n  # here"),
    statement("star_in_call", "X14", "return max(*n)  # here"),
    statement("double_star_in_call", "X14", "return nl.load(x, **n)  # here"),
    statement("dict_as_condition", "X17", "d = {}\nif d:  # here\n    pass"),
    statement("tensor_as_condition", "X17", "return 1 if x else 2  # here"),
    statement("tensor_and", "X17", "return n and x  # here"),
    statement("not_tensor", "X17", "return not x  # here"),
    statement("nested_index", "X19", "return x[(0, 1), 2]  # here"),
    statement("list_index", "X19", "return x[[0, 1]]  # here"),
)

BUILTINS = (
    statement("enumerate", "B01", "for item in enumerate(n):  # here\n    pass"),
    statement("zip", "B01", "for item in zip(n, n):  # here\n    pass"),
    statement("sorted", "B01", "return sorted(n)  # here"),
    statement("getattr", "B01", 'return getattr(n, "a")  # here'),
    statement("builtin_as_value", "B01", "return nl.ds(n, sum)  # here"),
    statement("range_kept", "B02", "r = range(n)  # here"),
    statement("range_to_tuple", "B02", "return tuple(range(n))  # here"),
    statement("isinstance_of_two", "B03", "return isinstance(n, (int, float))  # here"),
    statement("min_of_three", "B04", "return min(n, 2, 3)  # here"),
    statement("max_with_default", "B04", "return max(n, default=0)  # here"),
    statement("list_insert", "B05", "xs = [n]\nxs.insert(0, n)  # here"),
    statement("list_pop_first", "B05", "xs = [n]\nxs.pop(0)  # here"),
    statement("dict_update", "B05", "d = {}\nd.update(n)  # here"),
    statement("list_index_trap", "B06", "xs = [n]\nreturn xs.index(n)  # here"),
    Violation("math_log", "B07", "import math\ndef kernel(n):\n    return math.log(n)  # here"),
    Violation("math_exp", "B07", "from math import exp\ndef kernel(n):\n    return exp(n)  # here"),
    Violation(
        "numpy_call", "B08", "import numpy as np\ndef kernel(n):\n    return np.zeros(n)  # here"
    ),
    Violation(
        "numpy_dtype",
        "B08",
        "from numpy import float32\ndef kernel(n):\n    return nl.zeros((2, n), float32)  # here",
    ),
    Violation("os_call", "B09", "import os\ndef kernel(n):\n    return os.getcwd()  # here"),
    Violation("global_lambda", "B09", "f = lambda v: v\ndef kernel(n):\n    return f(n)  # here"),
    Violation("undefined", "B10", "def kernel(n):\n    return not_there(n)  # here"),
    Violation(
        "retired_api",
        "B11",
        "import neuronxcc.nki.language as old\ndef kernel(n):\n    return old.load(n)  # here",
        can_be_imported=False,
    ),
    statement("string_method", "B12", 'return "-".join(n)  # here'),
)

FUNCTIONS = (
    Violation("star_parameter", "F01", "def kernel(*n):  # here\n    return n"),
    Violation("double_star_parameter", "F02", "def kernel(n, **options):  # here\n    return n"),
    Violation("keyword_only", "F03", "def kernel(n, *, m=1):  # here\n    return n + m"),
    Violation("position_only", "F04", "def kernel(n, /):  # here\n    return n"),
    Violation(
        "decorator",
        "F05",
        """
        import functools
        @functools.lru_cache  # here
        def helper(n):
            return n
        def kernel(n):
            return helper(n)
        """,
    ),
    Violation("mutable_default", "F06", "def kernel(n, taps=[]):  # here\n    return n"),
    Violation(
        "kernel_in_kernel",
        "F07",
        """
        @nki.jit
        def inner(n):
            return n
        def kernel(n):
            return inner(n)  # here
        """,
    ),
)

CLASSES = (
    Violation(
        "plain_class",
        "C01",
        """
        class Pair:  # here
            first: int
        def kernel(n):
            return Pair(n)
        """,
    ),
    Violation(
        "second_generation",
        "C01",
        """
        class Base(nl.NKIObject):
            pass
        class Derived(Base):  # here
            pass
        def kernel(n):
            return Derived()
        """,
    ),
    Violation(
        "class_keyword",
        "C02",
        """
        class Meta(type):
            pass
        class Pair(nl.NKIObject, metaclass=Meta):  # here
            pass
        def kernel(n):
            return Pair()
        """,
    ),
    Violation(
        "code_in_class",
        "C03",
        """
        class Pair(nl.NKIObject):
            for i in (1, 2):  # here
                pass
        def kernel(n):
            return Pair()
        """,
    ),
    Violation(
        "property",
        "F05",
        """
        class Pair(nl.NKIObject):
            @property  # here
            def size(self):
                return 2
        def kernel(n):
            return Pair()
        """,
    ),
    Violation(
        "slots",
        "C04",
        """
        from dataclasses import dataclass
        @dataclass(slots=True)  # here
        class Pair(nl.NKIObject):
            first: int
        def kernel(n):
            return Pair(n)
        """,
    ),
    Violation(
        "slots_by_hand",
        "C04",
        """
        class Pair(nl.NKIObject):
            __slots__ = ("first",)  # here
        def kernel(n):
            return Pair()
        """,
    ),
    Violation(
        "method",
        "X13",
        """
        class Pair(nl.NKIObject):
            def values(self):
                return [v for v in self.all]  # here
        def kernel(n):
            return Pair()
        """,
    ),
)

LOOPS = (
    statement("affine_range", "L01", "for i in nl.affine_range(n):  # here\n    pass"),
    statement("dynamic_range", "L02", "for i in nl.dynamic_range(n):  # here\n    pass"),
    statement("int_of_register", "L03", "r = nisa.register_alloc(n)\nreturn int(r)  # here"),
    statement("if_register", "L03", "r = nisa.register_alloc(n)\nif r:  # here\n    pass"),
    statement("while_register", "L03", "r = nisa.register_alloc(n)\nwhile r:  # here\n    pass"),
    statement("register_or", "L03", "r = nisa.register_alloc(n)\nreturn n or r  # here"),
    statement("not_register", "L03", "r = nisa.register_alloc(n)\nreturn not r  # here"),
    statement(
        "range_of_register",
        "L03",
        "r = nisa.register_alloc(n)\nfor i in range(r):  # here\n    pass",
    ),
    statement("register_sum", "L04", "r = nisa.register_alloc(n)\nreturn r + 1  # here"),
    statement("register_order", "L04", "r = nisa.register_alloc(n)\nreturn r < 3  # here"),
    Violation(
        "counter_sum",
        "L04",
        """
        def kernel(n, x):
            def body(i):
                nisa.tensor_copy(dst=x, src=x.ap([[1, 1]], scalar_offset=i + 1))  # here
            nl.fori_loop(0, n, body)
        """,
    ),
    Violation(
        "counter_of_a_module_level_body",
        "L04",
        """
        def body(i):
            nl.ds(i * 2, 2)  # here
        def kernel(n):
            nl.fori_loop(0, n, body)
        """,
    ),
    Violation(
        "loop_in_order",
        "L05",
        """
        def kernel(n):
            def body(i):
                pass
            with nl.no_reorder():
                nl.fori_loop(0, n, body)  # here
        """,
    ),
    Violation(
        "hidden_loop_in_order",
        "L05",
        """
        def body(i):
            pass
        def rows(n):
            nl.fori_loop(0, n, body)
        def planes(n):
            rows(n)
        def kernel(n):
            with nl.no_reorder():
                planes(n)  # here
        """,
    ),
    Violation(
        "loop_step",
        "L06",
        """
        def kernel(n):
            def body(i):
                pass
            nl.fori_loop(0, n, body, step=-1)  # here
        """,
    ),
    Violation(
        "body_of_two",
        "L07",
        """
        def body(i, j):  # here
            pass
        def kernel(n):
            nl.fori_loop(0, n, body)
        """,
    ),
    Violation(
        "body_with_a_result",
        "L07",
        """
        def kernel(n):
            def body(i):
                return i  # here
            nl.fori_loop(0, n, body)
        """,
    ),
    Violation(
        "while_body_without_a_result",
        "L07",
        """
        def body(r):  # here
            pass
        def kernel(n):
            nl.while_loop(n, body)
        """,
    ),
    Violation(
        "counter_written",
        "L08",
        """
        def kernel(n, x):
            def body(i):
                nisa.register_load(dst=i, src=x)  # here
            nl.fori_loop(0, n, body)
        """,
    ),
)

NAMES = (
    statement(
        "name_twice",
        "N01",
        'a = nl.zeros((2, 2), nl.float32, name="t")\nb = nl.load(x)\n'
        'c = nl.ndarray((2, 2), nl.float32, name="t")  # here',
    ),
    statement(
        "name_in_loop",
        "N02",
        'for i in range(n):\n    a = nl.zeros((2, 2), nl.float32, name="t")  # here',
    ),
)

VIOLATIONS = (
    *STATEMENTS,
    *EXPRESSIONS,
    *BUILTINS,
    *FUNCTIONS,
    *CLASSES,
    *LOOPS,
    *NAMES,
)


def found_by(report, violation):
    return {(each.rule, each.line) for each in report.findings if each.rule != violation.also}


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_a_violation_is_found_in_text(violation):
    report = lint_source(violation.source, entry="kernel")
    assert found_by(report, violation) == {(violation.rule, violation.line)}


@pytest.mark.parametrize("violation", [v for v in VIOLATIONS if v.can_be_imported], ids=str)
def test_a_violation_is_found_in_an_imported_function(violation, import_text):
    module = import_text(violation.source)
    report = lint(module.kernel)
    assert found_by(report, violation) == {(violation.rule, violation.line)}
    assert {each.file for each in report.findings} == {module.__file__}


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_a_finding_says_what_where_and_what_to_do(violation):
    report = lint_source(violation.source, filename="kernels.py", entry="kernel")
    for finding in report.findings:
        assert finding.level == rules()[finding.rule].level
        assert finding.message
        assert finding.remedy
        assert finding.function
        line = violation.source.splitlines()[finding.line - 1]
        assert 1 <= finding.column <= len(line)


def test_every_rule_has_a_violation():
    of_the_tracer = {"K01", "K02"}  # test_tracer.py
    assert {violation.rule for violation in VIOLATIONS} == set(rules()) - of_the_tracer


def test_names_of_violations_are_unique():
    names = [violation.name for violation in VIOLATIONS]
    assert sorted(set(names)) == sorted(names)
