"""Every refusal of nkisim.

    NkiValidationError            a rule of the machine or of the API was broken
      UnsupportedError            a documented name or option that nkisim does not model
      DTypeError                  (in numerics.dtypes) a dtype or cast that NKI does not have
      MemoryLimitError            SBUF, PSUM or an address does not hold what was asked
      AliasError                  a tensor was used after its bytes were given to another one
      RunTimeValueError           Python wanted the value of something only the device knows
      RaceError                   two cores touch the same HBM bytes without an order between them

A message has three parts: what was asked, the limit it met (with its unit), what to do instead.
"""

from __future__ import annotations

from typing import NoReturn


class NkiValidationError(Exception):
    """A broken rule; `instruction`, `limit` and `remedy` hold the parts of the message."""

    def __init__(
        self,
        what: str,
        *,
        instruction: str | None = None,
        limit: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.instruction = instruction
        self.limit = limit
        self.remedy = remedy
        super().__init__(self._text())

    def _text(self) -> str:
        head = f"{self.instruction}: {self.what}" if self.instruction else self.what
        limit = f"\n  limit:  {self.limit}" if self.limit else ""
        remedy = f"\n  remedy: {self.remedy}" if self.remedy else ""
        return head + limit + remedy


class UnsupportedError(NkiValidationError):
    """Asked for something the API documents and nkisim refuses to pretend to do."""


class MemoryLimitError(NkiValidationError):
    """A tensor, or all that are alive together, do not fit."""


class AliasError(NkiValidationError):
    """Bytes were read through one tensor after another tensor overwrote them."""


class RunTimeValueError(NkiValidationError, TypeError):
    """`if`, int() or range() on a register or scalar; NKI raises TypeError, which this is too."""


class RaceError(NkiValidationError):
    """Conflicting accesses of two cores with no barrier between them."""


def refuse(instruction: str | None, what: str, limit: str, remedy: str) -> NoReturn:
    """Raise the standard refusal."""
    raise NkiValidationError(what, instruction=instruction, limit=limit, remedy=remedy)
