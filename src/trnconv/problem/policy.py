"""Policy: how much accuracy a caller gives for speed, and what is known of the data."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.errors import PlanError

DIRECT, BF16, FAST, FASTEST, HALF = "direct", "bf16", "fast", "fastest", "half"
# The expected RMS error may be this many times that of a direct bf16 convolution. HALF is for
# float32 data whose owner accepts products of fp16: it has no such limit, and only F(2,3).
LIMITS = {DIRECT: 1.0, BF16: 1.05, FAST: 1.2, FASTEST: 1.4, HALF: float("inf")}
_LEAST_MACS = 10**10  # a direct convolution of that many takes about 0.2 ms on a full array
_SEPARATOR = "/"


@dataclass(frozen=True)
class Policy:
    """What a caller accepts.

    `x_max` is the largest |x| that a convolution will meet (`runtime.calibrate`); without it every
    call checks its data. Convolutions with fewer multiplications than `least_macs` stay direct:
    what a fast algorithm would save is less than what finding it costs.
    """

    accuracy: str = BF16
    x_max: float | None = None
    least_macs: int = _LEAST_MACS

    def __post_init__(self) -> None:
        if self.accuracy not in LIMITS:
            raise PlanError(f"accuracy={self.accuracy!r}: one of {', '.join(LIMITS)}.")

    def text(self) -> str:
        """As ops of torch take it; `policy_of` is the inverse."""
        known = "" if self.x_max is None else repr(self.x_max)
        return _SEPARATOR.join((self.accuracy, known, str(self.least_macs)))


DEFAULT_POLICY = Policy()
ALWAYS_DIRECT = Policy(DIRECT)


def policy_of(asked: str | Policy) -> Policy:
    """A policy by its name, by what `Policy.text` gave, or as it is."""
    if isinstance(asked, Policy):
        return asked
    accuracy, *rest = asked.split(_SEPARATOR)
    if not rest:
        return Policy(accuracy)
    known, least = rest
    return Policy(accuracy, float(known) if known else None, int(least))
