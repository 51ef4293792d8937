"""Numbers as a report writes them: three significant digits, a unit that suits, no exponents."""

from __future__ import annotations

from math import floor, log10

from nkisim.machine_workarounds import MEASURED

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "\u00b5s"), (1e-9, "ns"))
_AMOUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def measured_in(machine: str) -> str:
    """What of a time on a machine of this name was measured: nothing, or some of its constants."""
    return "the time is modelled" if MEASURED in machine else "nothing was measured"


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits: 9.41, 0.0644, 1,930."""
    if value == 0:
        return "0"
    size = digits - 1 - floor(log10(abs(value)))
    rounded = round(value, size)
    decimals = digits - 1 - floor(log10(abs(rounded)))  # 9.999 became 10.0
    return f"{rounded:,.{max(0, decimals)}f}"


def duration(seconds: float) -> str:
    """A time: 9.41 s, 28.8 ms, 812 us."""
    unit, name = next((pair for pair in _TIMES if abs(seconds) >= pair[0]), _TIMES[-1])
    return f"{significant(seconds / unit)}\u00a0{name}"


def amount(value: float, unit: str = "") -> str:
    """A count or bytes: 4.39 M, 1.44 GB."""
    for size, prefix in _AMOUNTS:
        if abs(value) >= size:
            return f"{significant(value / size)}\u00a0{prefix}{unit}"
    return f"{significant(value)}\u00a0{unit}".rstrip()


def percent(share: float, decimals: int = 0) -> str:
    """A share: 71 %."""
    return f"{100 * share:.{decimals}f}\u00a0%"


def change(share: float) -> str:
    """A difference with its sign: +2.1 %."""
    sign = "+" if share > 0 else "\u2212" if share < 0 else "\u00b1"
    return f"{sign}{100 * abs(share):.1f}\u00a0%"


def times(factor: float) -> str:
    """A factor: 1.56 x."""
    return f"{significant(factor)}\u2009\u00d7"
