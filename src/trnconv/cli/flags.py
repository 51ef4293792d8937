"""Flags shown as flags: they take no value, and the help names no type behind them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _plain(parameters: list[Any]) -> list[Any]:
    """Options, those that are flags without a word for a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class PlainCommand(TyperCommand):
    """A command whose help shows flags as flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All options, `--help` too."""
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same for what commands are in."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All options, `--help` too."""
        return _plain(super().get_params(ctx))
