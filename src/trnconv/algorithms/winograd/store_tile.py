"""Where outputs of a chain go: out of PSUM, through the epilogue, to a buffer."""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.algorithms.winograd.chain import PLAIN
from trnconv.algorithms.winograd.executors import ChainExecutor, Tile
from trnconv.algorithms.winograd.stages import EARLIER_FRAME, FIRST, SECOND
from trnconv.problem.epilogue import AFTER, BEFORE, IDENTITY


class StoreTile(nl.NKIObject):
    """Where the outputs of a chain go: an output buffer, and what is added to it."""

    def __init__(
        self,
        chain: ChainExecutor,
        out: Tile | None,
        added: Tile | None,
        completes: bool,  # noqa: FBT001
    ) -> None:
        self.chain = chain
        self.out = out
        self.added = added
        self.completes = completes  # the output buffer

    def end(self, output: int, bank: Tile, scale: int, other: Tile, between: Tile) -> None:
        """What scale * bank + other ends in: an output, or of an early stage what others need."""
        chain, stage = self.chain, self.chain.stage
        if chain.stages == 1:
            self.end_output(output, bank, scale, other, between)
            return
        first, second = chain.held(0, output), chain.held(1, output)
        if stage == FIRST:
            chain.add(first, bank, scale, other)
            return
        total = chain.between()
        chain.add(total, bank, scale, other)
        if stage == SECOND:
            chain.combine(second, first, total, adds=False)
            chain.combine(first, first, total, adds=True)
        else:
            before = first if stage == EARLIER_FRAME else second
            self.end_output(output, total, PLAIN, before, between)

    def end_output(self, output: int, bank: Tile, scale: int, other: Tile, between: Tile) -> None:
        """out = the end of scale * bank + other, phase by phase of stacked columns.

        With an activation or a residual that is not in `other`, the sum goes to `between` first.
        """
        chain = self.chain
        assert self.out != None, "an output of a stage that completes none"
        if chain.epilogue.activation == IDENTITY and not self.adds(output):
            for phase in range(chain.phases):
                chain.write(self.out, output, phase, bank, scale, other)
            return
        chain.add(between, bank, scale, other)
        for phase in range(chain.phases):
            self.finish(output, phase, between)

    def adds(self, output: int) -> bool:
        """Whether a residual is still to be added to an output."""
        return self.added != None and output not in self.chain.gpsimd_outputs

    def add_residual(self, output: int, dst: Tile, other: Tile) -> Tile:
        """dst = other + residual by the GpSimd engine, if that is its work; else other as it is."""
        if self.added == None or output not in self.chain.gpsimd_outputs:
            return other
        self.chain.add_on_gpsimd(dst, other, self.added, output)
        return dst

    def finish(self, output: int, phase: int, between: Tile) -> None:
        """out = activation(between [+ residual]) [+ residual], in one column phase."""
        chain, epilogue = self.chain, self.chain.epilogue
        written, value = chain.view(self.out, output, phase), chain.part(between, phase)
        if not self.adds(output):
            chain.activate(written, value)
            return
        residual = chain.view(self.added, output, phase)
        if epilogue.residual == BEFORE and epilogue.activation == IDENTITY:
            chain.add_buffer(written, value, residual)
            return
        if epilogue.residual == BEFORE:
            chain.add_buffer(value, value, residual)
            chain.activate(written, value)
        if epilogue.residual == AFTER:
            chain.activate(value, value)
            chain.add_buffer(written, value, residual)
