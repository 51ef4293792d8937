"""Which functions are bodies of device loops (`nl.fori_loop`, `nl.while_loop`)."""

import ast

from nkisim.lint.analysis.definition import FunctionNode, Role
from nkisim.lint.analysis.kinds import Resolve
from nkisim.lint.analysis.vocabulary import LOOP_BODY_POSITION, nki_name

_ROLES = {"fori_loop": Role.FORI_BODY, "while_loop": Role.WHILE_BODY}


def loop_body(call: ast.Call, resolve: Resolve) -> tuple[ast.expr, Role] | None:
    """The function a call runs as a loop body and its role; None if it starts no loop."""
    name = nki_name(resolve(call.func) or "")
    if name not in LOOP_BODY_POSITION:
        return None
    position = LOOP_BODY_POSITION[name]
    given = [keyword.value for keyword in call.keywords if keyword.arg == "body_fun"]
    given += call.args[position : position + 1]
    return (given[0], _ROLES[name]) if given else None


def loop_body_names(function: FunctionNode, resolve: Resolve) -> dict[str, Role]:
    """The plain names that are handed to device loops anywhere in a function."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    bodies = (body for call in calls if (body := loop_body(call, resolve)))
    return {body.id: role for body, role in bodies if isinstance(body, ast.Name)}
