"""Parsed sources, and the definitions found in them."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from nkisim.lint.analysis.definition import FUNCTION_NODES, DefinitionNode, FunctionNode


@lru_cache(maxsize=256)
def parsed(text: str, file: str) -> ast.Module:
    """The syntax tree of a source text. Raises SyntaxError as Python does."""
    return ast.parse(text, filename=file)


@lru_cache(maxsize=256)  # every name of a function that is looked up asks for those of its file
def definitions_in(tree: ast.Module) -> tuple[tuple[str, DefinitionNode], ...]:
    """Every function and class at any depth, with its qualified name."""
    return tuple(_definitions_below(tree, ""))


def _definitions_below(node: ast.AST, prefix: str) -> Iterator[tuple[str, DefinitionNode]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTION_NODES, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from _definitions_below(child, f"{name}.")
        else:
            yield from _definitions_below(child, prefix)


def first_line(node: FunctionNode) -> int:
    """The line a function starts on, decorators included, as its code object tells it."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
