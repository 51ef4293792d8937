"""Operation: what a model does besides convolutions, in pieces that one kernel each could do."""

from __future__ import annotations

from dataclasses import dataclass

CHANNEL_NORM, GROUP_NORM, ATTENTION, PRODUCT = "channel norm", "group norm", "attention", "product"


@dataclass(frozen=True)
class Operation:
    """Equal ones are counted together, whichever module asks for them.

    `kind` is one of the above or the name of the only operator (`silu`, `add`, `cat`). `sizes` say
    more than the shape of the result where a kind needs it:

    - channel norm: images, channels, positions
    - group norm: images, channels, groups, positions
    - attention: batch, queries, keys, head size; then 1 if a mask is added, else 0
    - product: batch, rows, summed, columns
    """

    kind: str
    shape: tuple[int, ...]  # of the result
    dtype: str
    read_bytes: int  # from outside of it
    written_bytes: int  # of the result alone
    steps: tuple[str, ...]  # torch's operators for it, in order
    step_bytes: int  # what those read and write, each by itself
    sizes: tuple[int, ...] = ()

    @property
    def moved_bytes(self) -> int:
        """What a kernel of its own reads and writes."""
        return self.read_bytes + self.written_bytes
