"""Every refusal of nkisim.

    NkiValidationError            a rule of the machine or of the API was broken
      UnsupportedError            a documented name or option that nkisim does not model
      DTypeError                  (in numerics.dtypes) a dtype or cast that NKI does not have
      MemoryLimitError            SBUF, PSUM or an address does not hold what was asked
      AliasError                  a tensor was used after its bytes were given to another one
      RunTimeValueError           Python wanted the value of something only the device knows
      ArgumentError               a call that does not fit the function: kinds, parameters
      UnknownNameError            a function, dtype or attribute that NKI does not have
      DeviceRuleError             devices, or their compiler, were reported not to take this
      RaceError                   two cores touch the same HBM bytes without an order between them

A message has four parts: what was asked, the limit it met (with its unit), what to do instead, and
the line of the user's own file that asked.
"""

from __future__ import annotations

from typing import NoReturn

from nkisim.source_lines import SourceLine, user_place


class NkiValidationError(Exception):
    """A broken rule; `instruction`, `limit`, `remedy` and `place` hold the parts of the message.

    `place` is the user's line that was running when the error was made, unless one is passed; None
    where no code but nkisim's was running.
    """

    def __init__(
        self,
        what: str,
        *,
        instruction: str | None = None,
        limit: str | None = None,
        remedy: str | None = None,
        place: SourceLine | None = None,
    ) -> None:
        self.what = what
        self.instruction = instruction
        self.limit = limit
        self.remedy = remedy
        self.place = place or user_place()
        super().__init__(self._text())

    @property
    def file(self) -> str | None:
        """The user's file."""
        return self.place.file if self.place else None

    @property
    def line(self) -> int | None:
        """The line in it, counted from 1."""
        return self.place.line if self.place else None

    def _text(self) -> str:
        head = f"{self.instruction}: {self.what}" if self.instruction else self.what
        limit = f"\n  limit:  {self.limit}" if self.limit else ""
        remedy = f"\n  remedy: {self.remedy}" if self.remedy else ""
        return head + limit + remedy + self._place_text()

    def _place_text(self) -> str:
        if self.place is None:
            return ""
        source = f"\n          {self.place.source}" if self.place.source else ""
        return f"\n  at:     {self.place.text}, in {self.place.function}{source}"


class UnsupportedError(NkiValidationError):
    """Asked for something the API documents and nkisim refuses to pretend to do."""


class MemoryLimitError(NkiValidationError):
    """A tensor, or all that are alive together, do not fit."""


class AliasError(NkiValidationError):
    """Bytes were read through one tensor after another tensor overwrote them."""


class RunTimeValueError(NkiValidationError, TypeError):
    """`if`, int() or range() on a register or scalar; NKI raises TypeError, which this is too."""


class ArgumentError(NkiValidationError, TypeError):
    """A call that does not fit the function; a TypeError too, as Python would have raised."""


class UnknownNameError(NkiValidationError, AttributeError):
    """Asked for a name that does not exist; an AttributeError too, because hasattr asks as well."""


class DeviceRuleError(NkiValidationError):
    """A rule of `nkisim.device_rules` was broken; `rule` is its name."""

    def __init__(
        self,
        what: str,
        *,
        instruction: str | None = None,
        limit: str | None = None,
        remedy: str | None = None,
        place: SourceLine | None = None,
        rule: str = "",
    ) -> None:
        self.rule = rule
        super().__init__(what, instruction=instruction, limit=limit, remedy=remedy, place=place)


class RaceError(NkiValidationError):
    """Conflicting accesses of two cores with no barrier between them."""


def refuse(instruction: str | None, what: str, limit: str, remedy: str) -> NoReturn:
    """Raise the standard refusal."""
    raise NkiValidationError(what, instruction=instruction, limit=limit, remedy=remedy)
