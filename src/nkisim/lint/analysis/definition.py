"""Sources to check, and what the names in them mean.

Two readers provide these records: `live` looks at imported objects, `text` at files alone. The
rules see only what stands here.
"""

import ast
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode: TypeAlias = FunctionNode | ast.ClassDef
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)


class Role(Enum):
    """How a function is reached: a loop body gets a register as its argument."""

    CALLED = auto()
    FORI_BODY = auto()
    WHILE_BODY = auto()


class Sight(Enum):
    """Whether the checker could look at what a name refers to."""

    CLEAR = auto()
    NO_SOURCE = auto()  # the object exists, but no Python source of it does
    NOT_FOUND = auto()  # neither a definition nor a file to look into


class Namespace(Protocol):
    """The names a definition can see beyond its own locals."""

    def resolve(self, names: tuple[str, ...]) -> "Target":
        """What the dotted name `names` refers to; never raises."""
        ...


@dataclass(frozen=True, eq=False)
class Definition:
    """One function or class with its source."""

    node: DefinitionNode
    file: str
    name: str  # qualified within its file
    namespace: Namespace

    @property
    def key(self) -> tuple[str, int, str]:
        """Equal for two records of the same source."""
        return (self.file, self.node.lineno, self.name)


@dataclass(frozen=True)
class Target:
    """What a dotted name refers to, as far as it can be told."""

    path: str  # canonical: "nki.language.load", "builtins.zip", "windows.Span"
    definitions: tuple[Definition, ...] = ()  # user sources that a use of the name reaches
    is_jitted: bool = False  # wrapped by nki.jit
    sight: Sight = Sight.CLEAR


def dotted_names(expression: ast.expr | None) -> tuple[str, ...] | None:
    """`a.b.c` as ("a", "b", "c"); None for any other expression."""
    if isinstance(expression, ast.Name):
        return (expression.id,)
    if isinstance(expression, ast.Attribute):
        owner = dotted_names(expression.value)
        return (*owner, expression.attr) if owner else None
    return None
