"""Visits one definition: the rules it breaks and the definitions it reaches."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from nkisim.lint.analysis.annotations import annotated_types
from nkisim.lint.analysis.bindings import parameters
from nkisim.lint.analysis.definition import FUNCTION_NODES, Definition, Role, dotted_names
from nkisim.lint.analysis.loop_bodies import loop_body, loop_body_names
from nkisim.lint.analysis.scope import Scope
from nkisim.lint.checks import Breach, breaches_at, class_breaches, function_breaches
from nkisim.lint.checks.classes import is_base
from nkisim.lint.checks.loops import is_ordered, starts_device_loop

# NKI compares objects by their fields and never prints them.
_CALLED_BY_PYTHON_ONLY = frozenset({"__hash__", "__eq__", "__ne__", "__repr__", "__str__"})


@dataclass(frozen=True)
class Reach:
    """A definition that is used, and how."""

    definition: Definition
    role: Role = Role.CALLED


@dataclass(frozen=True)
class Review:
    """What came out of visiting one definition; filled during the visit."""

    breaches: list[Breach] = field(default_factory=list)
    reached: list[Reach] = field(default_factory=list)
    device_loops: list[ast.Call] = field(default_factory=list)
    ordered_uses: list[tuple[ast.expr, Definition]] = field(default_factory=list)  # in no_reorder

    def absorb(self, other: "Review") -> None:
        """Add what another visit found."""
        self.breaches.extend(other.breaches)
        self.reached.extend(other.reached)
        self.device_loops.extend(other.device_loops)
        self.ordered_uses.extend(other.ordered_uses)


def review(reach: Reach) -> Review:
    """Check a function, or a class with all its methods."""
    result = Review()
    definition, node = reach.definition, reach.definition.node
    if isinstance(node, ast.ClassDef):
        result.breaches.extend(class_breaches(node, definition))
        result.reached.extend(_reached_by_fields(node, definition))
        methods = [member for member in node.body if isinstance(member, FUNCTION_NODES)]
        for method in methods:
            _review_method(Scope(definition, method), result)
    else:
        _review_function(Scope(definition, node, reach.role), result)
    return result


def _review_method(scope: Scope, result: Review) -> None:
    """Check a method; in those that only Python calls, NKI reads the syntax but runs nothing."""
    found = Review()
    _review_function(scope, found)
    if scope.function.name in _CALLED_BY_PYTHON_ONLY:
        syntax = [breach for breach in found.breaches if not breach.rule.startswith("B")]
        found = Review(breaches=syntax)
    result.absorb(found)


def _review_function(scope: Scope, result: Review) -> None:
    result.breaches.extend(function_breaches(scope))
    result.reached.extend(_reached_by_signature(scope.function.args, scope.definition))
    for statement in scope.function.body:
        _visit(statement, scope, result)


def _visit(node: ast.AST, scope: Scope, result: Review) -> None:
    result.breaches.extend(breaches_at(node, scope))
    if isinstance(node, FUNCTION_NODES):
        role = loop_body_names(scope.function, scope.path).get(node.name, Role.CALLED)
        _review_function(Scope(scope.definition, node, role, scope), result)
    elif not isinstance(node, ast.ClassDef):
        _record_use(node, scope, result)
        scope.ancestors.append(node)
        for child in _read_children(node):
            _visit(child, scope, result)
        scope.ancestors.pop()


def _read_children(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that NKI reads: all but annotations."""
    ignored = node.annotation if isinstance(node, ast.AnnAssign) else None
    return (child for child in ast.iter_child_nodes(node) if child is not ignored)


def _record_use(node: ast.AST, scope: Scope, result: Review) -> None:
    if isinstance(node, ast.Call) and starts_device_loop(node, scope):
        result.device_loops.append(node)
    if isinstance(node, ast.Name | ast.Attribute) and not isinstance(scope.parent, ast.Attribute):
        target = scope.resolve(node)
        for definition in target.definitions if target else ():
            result.reached.append(Reach(definition, _role_of(node, scope)))
            if is_ordered(scope):
                result.ordered_uses.append((node, definition))


def _role_of(reference: ast.expr, scope: Scope) -> Role:
    body = loop_body(scope.parent, scope.path) if isinstance(scope.parent, ast.Call) else None
    return body[1] if body and body[0] is reference else Role.CALLED


def _reached_by_fields(node: ast.ClassDef, definition: Definition) -> Iterator[Reach]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            yield from _reached_by_annotation(member.annotation, definition)
        if isinstance(member, ast.AnnAssign | ast.Assign) and member.value:
            yield from _reached_by_value(member.value, definition)


def _reached_by_signature(arguments: ast.arguments, definition: Definition) -> Iterator[Reach]:
    for parameter in parameters(arguments):
        yield from _reached_by_annotation(parameter.annotation, definition)
    for default in (*arguments.defaults, *arguments.kw_defaults):
        if default is not None:
            yield from _reached_by_value(default, definition)


def _reached_by_value(value: ast.expr, definition: Definition) -> Iterator[Reach]:
    """What a default value refers to: it is computed by Python, but its methods are NKI's."""
    names = dotted_names(value)
    if names:
        yield from map(Reach, definition.namespace.resolve(names).definitions)


def _reached_by_annotation(annotation: ast.expr | None, definition: Definition) -> Iterator[Reach]:
    """Classes of arguments, so that their methods are checked; others are not NKI's business."""
    for annotated in annotated_types(annotation):
        names = dotted_names(annotated)
        for found in definition.namespace.resolve(names).definitions if names else ():
            node = found.node
            if isinstance(node, ast.ClassDef) and any(is_base(base, found) for base in node.bases):
                yield Reach(found)
