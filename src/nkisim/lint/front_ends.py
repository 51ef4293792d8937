"""Which rules hold for which front end: 0.6 parses a subset of Python, 0.7 traces all of it.

What the tracer refuses is little: run-time values where Python wants a value, operators on tensors,
loops it cannot see. Where reports on it contradict each other the rule is a warning.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from nkisim.lint.report import Level

Version = Literal["0.6", "0.7"]
DEFAULT: Final[Version] = "0.7"
FRONT_ENDS: Final[Mapping[str, str]] = MappingProxyType({"0.6": "parser", "0.7": "tracer"})

# The rules that hold for the tracer, and how strictly; no other rule does.
_TRACED: Final[Mapping[str, Level]] = MappingProxyType(
    {
        "B10": "warning",
        "B11": "error",
        "F03": "warning",  # reports conflict: shipped kernels of 2.33 have keyword arguments
        "F04": "warning",  # reports conflict, as for F03
        "F06": "warning",
        "K01": "warning",
        "K02": "warning",
        "L01": "warning",
        "L02": "error",
        "L03": "error",
        "L04": "error",
        "L05": "error",
        "L06": "error",
        "L07": "error",
        "N01": "error",
        "N02": "warning",
        "S11": "warning",
        "X04": "error",
        "X13": "warning",  # reports conflict: shipped kernels of 2.33 have comprehensions
    }
)


def level_for(rule: str, level: Level, version: Version) -> Level | None:
    """How strictly a rule holds in a version; None where it does not."""
    if version == "0.6":
        return None if rule.startswith("K") else level  # the parser has no such cache
    return _TRACED.get(rule)


def require_version(version: str) -> Version:
    """The version, or ValueError."""
    if version not in FRONT_ENDS:
        raise ValueError(f"nki={version!r}: the lint knows {', '.join(FRONT_ENDS)}")
    return "0.6" if version == "0.6" else "0.7"
