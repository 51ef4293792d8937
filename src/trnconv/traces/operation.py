"""Operation: what a model does besides convolutions, in pieces that one kernel each could do."""

from __future__ import annotations

from dataclasses import dataclass, replace

RMS_NORM, GROUP_NORM, ATTENTION, PRODUCT = "rms norm", "group norm", "attention", "product"
GROUP_STATISTICS, MODULATION = "group statistics", "modulation"
RMS_NORM_STEP, GROUP_NORM_STEP = "rms_norm", "group_norm"  # steps: kernels of ours


@dataclass(frozen=True)
class Operation:
    """Equal ones are counted together, whichever module asks for them.

    `kind` is one of the above or the name of the only operator (`silu`, `add`, `cat`). `sizes` say
    more than the shape of the result where a kind needs it:

    - rms norm: images, channels, positions
    - group norm: images, channels, groups, positions
    - group statistics: the same; a convolution, or a modulation, does the rest
    - modulation: channels, rows, columns, factor, then the low frame of each frame
    - attention: batch, queries, keys, head size; then 1 if a mask is added, else 0; then, of a
      kernel of ours, tokens of a frame, if it is causal by frame, else 0
    - product: batch, rows, summed, columns
    """

    kind: str
    shape: tuple[int, ...]  # of the result
    dtype: str
    read_bytes: int  # from outside of it
    written_bytes: int  # of the result alone
    steps: tuple[str, ...]  # torch's operators for it, in order
    step_bytes: int  # what those read and write, each by itself; of a kernel of ours, it alone
    sizes: tuple[int, ...] = ()
    activation: str = ""  # of a norm: what its kernel does behind it

    def as_norm(self) -> Operation:
        """A norm in place of its statistics; any other as it is."""
        if self.kind != GROUP_STATISTICS:
            return self
        images, channels, _, positions = self.sizes
        shape = (images, channels, positions)
        return replace(self, kind=GROUP_NORM, shape=shape, written_bytes=self.read_bytes)

    @property
    def moved_bytes(self) -> int:
        """What a kernel of its own reads and writes."""
        return self.read_bytes + self.written_bytes
