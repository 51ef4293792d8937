"""Where outputs of a chain go: out of PSUM, through the end of the convolution, to a buffer."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.ask.ends import AFTER, BEFORE, IDENTITY
from trnconv.forms.kernel_parts import OPERATORS
from trnconv.forms.minimal.chain import PLAIN, Chain
from trnconv.forms.minimal.stages import EARLIER_FRAME, FIRST, HELD, SECOND


class Goal(nl.NKIObject):
    """Where the outputs of a chain go: an output buffer, and what is added to it."""

    def __init__(
        self,
        chain: Chain,
        out: nl.NkiTensor | None,
        added: nl.NkiTensor | None,
        completes: bool,  # noqa: FBT001
    ) -> None:
        self.chain = chain
        self.out = out
        self.added = added
        self.completes = completes  # the output buffer

    def view(self, buffer: nl.NkiTensor, output: int, phase: int) -> nl.NkiTensor:
        """One output of every tile, in one column phase: [channels, rows, columns]."""
        chain = self.chain
        recipe, kind = chain.core.recipe, chain.block.kind
        tile, rectangle = chain.tile, chain.rectangle
        m, columns = recipe.outputs, kind.columns
        flat = buffer[0 : tile.channels]
        if recipe.by_rows:
            rows = recipe.unit_frames * kind.frame_rows
            shaped = flat[:, 0 : rows * m * columns].reshape((tile.channels, rows, m, columns))
            lines = shaped[:, rectangle.row : rectangle.row_end, output, :]
        else:
            rows = kind.units[chain.unit.number].rows
            shaped = flat[:, 0 : m * rows * columns].reshape((tile.channels, m, rows, columns))
            lines = shaped[:, output, rectangle.row : rectangle.row_end, :]
        first = rectangle.column * tile.stack + phase
        end = min(rectangle.column_end * tile.stack, columns)
        return lines[:, :, first : end : tile.stack]

    def end(
        self,
        output: int,
        bank: nl.NkiTensor,
        scale: int,
        other: nl.NkiTensor,
        between: nl.NkiTensor,
    ) -> None:
        """What scale * bank + other ends in: an output, or of an early stage what others need."""
        chain, stage = self.chain, self.chain.stage
        if chain.core.recipe.stages == 1:
            self.end_output(output, bank, scale, other, between)
            return
        first, second = self.held(0, output), self.held(1, output)
        if stage == FIRST:
            chain.add(first, bank, scale, other)
            return
        total = chain.shaped(chain.core.banks.between())
        chain.add(total, bank, scale, other)
        if stage == SECOND:
            nisa.tensor_tensor(dst=second, data1=first, data2=total, op=nl.subtract)
            nisa.tensor_tensor(dst=first, data1=first, data2=total, op=nl.add)
        else:
            before = first if stage == EARLIER_FRAME else second
            self.end_output(output, total, PLAIN, before, between)

    def held(self, which: int, output: int) -> nl.NkiTensor:
        """What stages hold of one output: a float32 tile of the rectangle's shape."""
        chain = self.chain
        tile = chain.core.held[HELD * chain.tile.number + which]
        elems = chain.rows * chain.columns
        return chain.shaped(tile[:, output * elems : (output + 1) * elems])

    def end_output(
        self,
        output: int,
        bank: nl.NkiTensor,
        scale: int,
        other: nl.NkiTensor,
        between: nl.NkiTensor,
    ) -> None:
        """out = the end of scale * bank + other, phase by phase of stacked columns.

        With an activation or a residual that is not in `other`, the sum goes to `between` first.
        """
        chain, recipe, out = self.chain, self.chain.core.recipe, self.out
        assert out != None, "an output of a stage that completes none"
        channels = chain.tile.channels
        adds = self.added != None and output not in recipe.gpsimd_outputs
        plain = recipe.end.activation == IDENTITY and not adds
        if not plain:
            chain.add(between, bank, scale, other)
        for phase in range(chain.phases):
            first = phase * chain.tile.pitch
            last = first + channels
            written = self.view(out, output, phase)
            count = written.shape[2]
            if plain:
                nisa.scalar_tensor_tensor(
                    dst=written,
                    data=bank[first:last, :, 0:count],
                    op0=nl.multiply,
                    operand0=chain.constant(scale)[first:last],
                    op1=nl.add,
                    operand1=other[first:last, :, 0:count],
                )
            else:
                self.finish(written, between[first:last, :, 0:count], output, phase)

    def add_residual(self, output: int, dst: nl.NkiTensor, other: nl.NkiTensor) -> nl.NkiTensor:
        """dst = other + residual by the GpSimd engine, if that is its work; else other as it is."""
        chain = self.chain
        if self.added == None or output not in chain.core.recipe.gpsimd_outputs:
            return other
        for phase in range(chain.phases):
            first = phase * chain.tile.pitch
            last = first + chain.tile.channels
            residual = self.view(self.added, output, phase)
            count = residual.shape[2]
            nisa.tensor_tensor(
                dst=dst[first:last, :, 0:count],
                data1=other[first:last, :, 0:count],
                data2=residual,
                op=nl.add,
                engine=nisa.engine.gpsimd,
            )
        return dst

    def finish(self, written: nl.NkiTensor, value: nl.NkiTensor, output: int, phase: int) -> None:
        """written = activation(value [+ residual]) [+ residual]."""
        end = self.chain.core.recipe.end
        if self.added == None or output in self.chain.core.recipe.gpsimd_outputs:
            nisa.activation(dst=written, op=OPERATORS[end.activation], data=value)
            return
        residual = self.view(self.added, output, phase)
        if end.residual == BEFORE and end.activation == IDENTITY:
            nisa.tensor_tensor(dst=written, data1=value, data2=residual, op=nl.add)
            return
        if end.residual == BEFORE:
            nisa.tensor_tensor(dst=value, data1=value, data2=residual, op=nl.add)
            nisa.activation(dst=written, op=OPERATORS[end.activation], data=value)
        if end.residual == AFTER:
            nisa.activation(dst=value, op=OPERATORS[end.activation], data=value)
            nisa.tensor_tensor(dst=written, data1=value, data2=residual, op=nl.add)
