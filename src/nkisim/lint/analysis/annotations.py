"""What an annotation says. NKI ignores annotations; the checker takes them as hints only."""

import ast
from collections.abc import Iterator

from nkisim.lint.analysis.definition import dotted_names
from nkisim.lint.analysis.kinds import KIND_OF_TYPE, Kind, Resolve
from nkisim.lint.analysis.vocabulary import TENSOR_ANNOTATIONS, nki_name


def annotated_types(annotation: ast.expr | None) -> Iterator[ast.expr]:
    """The types an annotation allows, without None, Optional, quotes and parameters."""
    match annotation:
        case ast.Constant(value=str() as text):
            yield from annotated_types(_parsed(text))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from annotated_types(left)
            yield from annotated_types(right)
        case ast.Subscript(value=head, slice=inner):
            names = dotted_names(head)
            yield from annotated_types(inner if names and names[-1] == "Optional" else head)
        case ast.Name() | ast.Attribute():
            yield annotation


def annotated_kind(annotation: ast.expr | None, resolve: Resolve) -> Kind:
    """The kind a parameter's annotation claims; UNKNOWN when it allows several."""
    types = list(annotated_types(annotation))
    if len(types) != 1:
        return Kind.UNKNOWN
    if nki_name(resolve(types[0]) or "") in TENSOR_ANNOTATIONS:
        return Kind.TENSOR
    names = dotted_names(types[0])
    return KIND_OF_TYPE.get(names[-1], Kind.UNKNOWN) if names else Kind.UNKNOWN


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
