"""How a rule is written: a generator of breaches, registered for the nodes it looks at."""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from nkisim.lint.analysis.scope import Scope


@dataclass(frozen=True)
class Breach:
    """One rule broken at one node."""

    rule: str
    node: ast.AST  # one that has a position
    message: str
    remedy: str | None = None  # where the rule's own remedy can be made more precise
    traced: bool = True  # False: NKI 0.7's tracer takes this one, whatever the rule says


Check = Callable[[Any, Scope], Iterator[Breach]]
_AnyCheck = TypeVar("_AnyCheck", bound=Check)
_CHECKS: dict[type[ast.AST], list[Check]] = defaultdict(list)


def check(*node_types: type[ast.AST]) -> Callable[[_AnyCheck], _AnyCheck]:
    """Register a rule for these types of node."""

    def register(function: _AnyCheck) -> _AnyCheck:
        for node_type in node_types:
            _CHECKS[node_type].append(function)
        return function

    return register


def breaches_at(node: ast.AST, scope: Scope) -> Iterator[Breach]:
    """Every rule broken at this node itself, not below it."""
    for function in _CHECKS.get(type(node), ()):
        yield from function(node, scope)
