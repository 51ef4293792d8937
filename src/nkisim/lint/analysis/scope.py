"""The function under review, as the rules see it: names, kinds and surroundings."""

import ast

from nkisim.lint.analysis.bindings import bound_names, infer_kinds
from nkisim.lint.analysis.definition import Definition, FunctionNode, Role, Target, dotted_names
from nkisim.lint.analysis.kinds import Kind, kind_of
from nkisim.lint.analysis.vocabulary import nki_name


class Scope:
    """One function, inner or not, while its nodes are visited."""

    def __init__(
        self,
        definition: Definition,
        function: FunctionNode,
        role: Role = Role.CALLED,
        outer: "Scope | None" = None,
    ) -> None:
        self.definition = definition
        self.function = function
        self.role = role
        self.outer = outer
        self.ancestors: list[ast.AST] = [function]  # of the node now visited, outermost first
        self._bound = bound_names(function)
        outer_kind = outer.kind_of_name if outer else _unknown
        self._kinds = infer_kinds(function, role, outer_kind, self.path)

    @property
    def parent(self) -> ast.AST:
        """The node right above the one now visited."""
        return self.ancestors[-1]

    def is_bound(self, name: str) -> bool:
        """Whether the name is local here or in a function around."""
        return name in self._bound or (self.outer is not None and self.outer.is_bound(name))

    def resolve(self, expression: ast.expr) -> Target | None:
        """What a dotted name from outside the function refers to; None for all the rest."""
        names = dotted_names(expression)
        if names is None or self.is_bound(names[0]):
            return None
        return self.definition.namespace.resolve(names)

    def path(self, expression: ast.expr) -> str | None:
        """The canonical path of a dotted name from outside the function."""
        target = self.resolve(expression)
        return target.path if target else None

    def nki_call(self, expression: ast.AST | None) -> str | None:
        """The last word of the NKI function an expression calls."""
        if not isinstance(expression, ast.Call):
            return None
        return nki_name(self.path(expression.func) or "")

    def builtin_call(self, expression: ast.AST) -> str | None:
        """The name of the builtin an expression calls."""
        path = self.path(expression.func) if isinstance(expression, ast.Call) else None
        package, _, name = (path or "").partition(".")
        return name if package == "builtins" else None

    def kind(self, expression: ast.expr) -> Kind:
        """What an expression holds."""
        return kind_of(expression, self.kind_of_name, self.path)

    def kind_of_name(self, name: str) -> Kind:
        """What a name holds."""
        if name in self._kinds:
            return self._kinds[name]
        return self.outer.kind_of_name(name) if self.outer else Kind.UNKNOWN


def _unknown(_: str) -> Kind:
    return Kind.UNKNOWN
