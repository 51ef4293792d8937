"""Errors of work on several ranks."""

from __future__ import annotations

from trnconv.errors import TrnconvError


class LostRankError(TrnconvError):
    """A message did not arrive in time. The text names the rank that is dead, if one is."""


class RanksDifferError(TrnconvError):
    """A rank has other weights, options, shapes or software. The text says who, and both values."""
