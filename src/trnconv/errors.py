"""Every refusal of trnconv.

TrnconvError                  base of all of them
ShapeError                  the arguments do not describe a convolution
PlanError                   no plan obeys the machine's limits, or a plan breaks one
UnsupportedError            a convolution this version does not compute
"""

from __future__ import annotations


class TrnconvError(Exception):
    """What was asked, the limit it met (with its unit), and what to do instead."""


class ShapeError(TrnconvError, ValueError, RuntimeError):
    """Sizes that do not fit together: a ValueError as NumPy's, a RuntimeError as torch's."""


class PlanError(TrnconvError):
    """A plan that a machine cannot run."""


class UnsupportedError(TrnconvError, NotImplementedError):
    """A convolution that is not computed here; the message says what is."""
