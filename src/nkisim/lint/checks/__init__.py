"""The rules of the subset. Importing this package registers those that look at single nodes."""

from collections.abc import Iterator

from nkisim.lint.analysis.scope import Scope
from nkisim.lint.checks import calls, expressions, references, statements
from nkisim.lint.checks.check import Breach, breaches_at
from nkisim.lint.checks.classes import class_breaches
from nkisim.lint.checks.loops import loop_body_breaches
from nkisim.lint.checks.signatures import signature_breaches
from nkisim.lint.checks.tensor_names import repeated_name_breaches

REGISTERING = (calls, expressions, references, statements)

__all__ = ["REGISTERING", "Breach", "breaches_at", "class_breaches", "function_breaches"]


def function_breaches(scope: Scope) -> Iterator[Breach]:
    """Every rule broken by a function as a whole."""
    yield from signature_breaches(scope.function, scope.definition)
    yield from loop_body_breaches(scope.function, scope.role)
    yield from repeated_name_breaches(scope)
