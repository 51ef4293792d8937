"""The names a kernel may use: builtins, methods, `math`, and the parts of NKI the rules look at.

Names of NKI are known by their package and last word (`nki.language.load`, `nkisim.language.load`
and `from nki.language import load` are one thing), because the API re-exports freely.
"""

import sys

NKI_PACKAGES = frozenset({"nki", "nkisim"})
# Names that stand for NKI by convention, used where a text does not import them.
CONVENTIONAL_NAMES = {
    "nki": "nki",
    "nl": "nki.language",
    "nisa": "nki.isa",
    "ncc": "nki.collectives",
    "nt": "nki.typing",
}
# Understood while specialising, or only about types: neither followed nor reported.
SILENT_PACKAGES = NKI_PACKAGES | {
    "typing",
    "typing_extensions",
    "dataclasses",
    "enum",
    "__future__",
}

_LIBRARIES = SILENT_PACKAGES | {"builtins", "numpy", "neuronxcc"}

BUILTINS = frozenset(
    """len min max abs int float str bool divmod tuple list dict slice print isinstance type
    range""".split()
)
BUILTIN_REMEDIES = {
    "enumerate": "count with `for i in range(len(xs))` and read `xs[i]`",
    "zip": "count with `for i in range(len(a))` and read `a[i]`, `b[i]`",
    "sorted": "copy the list and call its `sort()`, or order the values before the kernel",
    "reversed": "count down with `range(n - 1, -1, -1)`",
    "sum": "add up in a loop",
    "any": "loop and set a flag",
    "all": "loop and set a flag",
    "map": "append to a list in a loop",
    "filter": "append to a list in a loop, under an `if`",
    "set": "keep a list and test `x in xs`",
    "getattr": "write the attribute, or keep the values in a dict with string keys",
    "hasattr": "give every class the field, with None as default, and compare it with None",
    "round": "use `math.floor(x + 0.5)`",
    "pow": "use `**` or `math.pow`",
    "super": "derive directly from nl.NKIObject and set the fields in `__init__`",
}
LIST_METHODS = frozenset("append clear copy count extend index pop remove reverse sort".split())
# Methods whose result differs from Python's in the open parser.
LIST_TRAPS = {
    "index": "gives None where Python raises",
    "remove": "drops every equal item, not the first",
    "count": "gives the length of the list",
}
DICT_METHODS = frozenset("clear copy get items keys pop setdefault values".split())
MATH_NAMES = frozenset("ceil floor gcd log2 log10 pow sqrt pi e inf nan".split())

ALLOCATORS = frozenset("ndarray zeros ones full zeros_like empty_like rand".split())
# Functions of nki.language whose result is a tensor.
TENSOR_FUNCTIONS = ALLOCATORS | frozenset(
    """shared_constant shared_identity_matrix load load_transpose2d transpose matmul broadcast_to
    expand_dims gather_flattened copy where dropout softmax rms_norm
    add subtract multiply divide maximum minimum abs_max abs_min power fmod mod
    equal not_equal less less_equal greater greater_equal
    bitwise_and bitwise_or bitwise_xor left_shift right_shift invert
    logical_and logical_or logical_xor logical_not
    abs square exp log sqrt rsqrt reciprocal negative sign ceil floor trunc
    tanh sigmoid relu gelu silu softplus mish erf sin cos tan arctan
    sum max min mean prod var all""".split()
)
TENSOR_VIEWS = frozenset(
    """slice select permute broadcast expand_dim squeeze_dim reshape_dim flatten_dims reshape
    rearrange vector_select view reinterpret_cast ap indirect""".split()
)
# Parameters of nki.isa instructions that take tensors and nothing else.
TENSOR_OPERANDS = frozenset("dst src data data0 data1 data2 stationary moving".split())
TENSOR_ANNOTATIONS = frozenset({"ndarray", "NkiTensor", "tensor"})

REGISTER_MAKERS = frozenset({"register_alloc"})
SCALAR_MAKERS = frozenset({"scalar_load"})
REGISTER_WRITERS = frozenset({"register_move", "register_load"})
UNROLLED_RANGES = frozenset({"affine_range", "sequential_range", "static_range"})
DYNAMIC_RANGE = "dynamic_range"
NO_REORDER = "no_reorder"
# Loop functions and where their body stands among the positional arguments.
LOOP_BODY_POSITION = {"fori_loop": 2, "while_loop": 1}


def package_of(path: str) -> str:
    """The top-level package of a dotted name."""
    return path.partition(".")[0]


def nki_name(path: str) -> str | None:
    """The last word of a name of NKI's API, or None for a name of anybody else."""
    return path.rpartition(".")[2] if package_of(path) in NKI_PACKAGES else None


def is_jit(path: str) -> bool:
    """Whether a canonical path is that of `nki.jit`."""
    return nki_name(path) == "jit"


def is_library(path: str) -> bool:
    """Whether the name belongs to a package that is never followed into."""
    return package_of(path) in _LIBRARIES or is_standard_library(path)


def is_standard_library(path: str) -> bool:
    """Whether the name lives in Python's standard library."""
    return package_of(path) in sys.stdlib_module_names
