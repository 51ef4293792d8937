"""Statistics of channels: count, mean and count * variance of all positions of an image.

The Vector engine makes a record of every chunk (bn_stats) and combines them (bn_aggr) with what it
has of the image so far. Of a step of bf16 it makes records of the first positions only; k is the
mean of every other one of the last of these. Of the other n positions it has the sum, in half a
cycle each, and the Scalar engine the squares of what they are off k, which do not cancel as those
of x would:

    mean = sum of x / n        count * variance = sum of (k - x)^2 - n (mean - k)^2

An image that several cores share has a part for each; of any other, the parts that nobody has are
written with count 0.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.fused_ops.group_norm.recipe import GroupNormRecipe
from trnconv.fused_ops.sweep_kernel import SweepStep, TileRing, load_positions

TRIPLE = 3  # count, mean, count * variance
RECORD = 2 * TRIPLE  # of even and of odd positions
SLOTS = 6  # tiles of x: loads go on while records are combined
SUMS, SQUARES, DISTANCES = 0, 1, 2  # columns of a step whose positions the engines share
KINDS = 3


class StatisticsCore(nl.NKIObject):
    """What a core holds; the first triple of its records is the image so far."""

    def __init__(self, x: nl.NkiTensor, statistics: nl.NkiTensor, recipe: GroupNormRecipe) -> None:
        self.x = x
        self.statistics = statistics
        self.recipe = recipe
        lines, tiles = recipe.lines, recipe.tiles
        self.pitches = (recipe.image_pitch, recipe.channel_pitch)
        self.xs = TileRing(SLOTS, tiles, (lines, recipe.width), x.dtype)
        columns = TRIPLE + recipe.held * recipe.stride + RECORD * -(-recipe.width // recipe.chunk)
        self.records = TileRing(2, tiles, (lines, columns), nl.float32)
        if recipe.shared > 0:
            self.sums = TileRing(KINDS, tiles, (lines, recipe.held), nl.float32)
            self.read = nl.ndarray((lines, recipe.shared), dtype=nl.bfloat16, buffer=nl.sbuf)
        self.moments = TileRing(1, tiles, (lines, 2), nl.float32)
        self.absent = nl.ndarray((lines, TRIPLE), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=self.absent, value=0.0)
        self.slot = 0
        self.held = 0  # whole steps
        self.columns = TRIPLE  # of records that are held, with the image so far
        self.counted = 0

    def open_region(self) -> None:
        """Nothing is of a region: no PSUM."""

    def begin(self, _step: SweepStep) -> None:
        """An image of which nothing is counted."""
        self.slot = 1 - self.slot
        for tile in range(len(self.recipe.tiles)):
            nisa.memset(dst=self.records.whole(self.slot, tile)[:, 0:TRIPLE], value=0.0)

    def end(self, step: SweepStep) -> None:
        """What was found of an image, to this core's part; what is nobody's has count 0."""
        recipe = self.recipe
        for part in range(recipe.parts):
            if part == recipe.part:
                for tile in range(len(recipe.tiles)):
                    self.store(step, part, tile, self.records.at(self.slot, tile, TRIPLE))
            elif step.alone:
                for tile in range(len(recipe.tiles)):
                    self.store(step, part, tile, self.absent[0 : recipe.tiles[tile][1], :])

    def store(self, step: SweepStep, part: int, tile: int, triples: nl.NkiTensor) -> None:
        """A triple for each channel of a tile."""
        recipe = self.recipe
        channels = recipe.shape[1]
        pattern = ((TRIPLE, recipe.tiles[tile][1]), (1, TRIPLE))
        offset = TRIPLE * (part * channels + recipe.tiles[tile][0])
        pitch = TRIPLE * recipe.parts * channels
        nisa.dma_copy(dst=step.of(self.statistics, pitch, pattern, offset), src=triples)

    def run(self, steps: list[SweepStep]) -> None:
        """Some steps; their loads are issued as far ahead as there are tiles for them."""
        if steps[0].begins:
            self.slot = 0  # every iteration of a loop begins so
        for n in range(len(steps) + 1):
            if n < len(steps):
                load_positions(self.xs, n, steps[n], self.x, self.pitches)
            if n >= 1:
                if steps[n - 1].begins:
                    self.begin(steps[n - 1])
                self.count(steps[n - 1], n - 1)
                last = n == len(steps) or steps[n - 1].image != steps[n].image
                if last or self.held == self.recipe.held or steps[n - 1].width < self.recipe.width:
                    self.combine()
                if steps[n - 1].ends:
                    self.end(steps[n - 1])

    def count(self, step: SweepStep, n: int) -> None:
        """Records of a step; of one that is not whole, of chunks only."""
        recipe, shared = self.recipe, 0
        if step.width == recipe.width:
            shared = recipe.shared
            self.held += 1
        if shared > 0:
            self.columns += TRIPLE  # see `fill_triples`
        for first in range(0, step.width - shared, recipe.chunk):
            end = min(first + recipe.chunk, step.width - shared)
            for tile in range(len(recipe.tiles)):
                record = self.records.at(self.slot, tile, self.columns + RECORD, self.columns)
                nisa.bn_stats(dst=record, data=self.xs.at(n, tile, end, first))
            self.columns += RECORD
        if shared > 0:
            self.share_out(step.width - shared, n)
        self.counted += step.width

    def share_out(self, first: int, n: int) -> None:
        """Sums of a whole step from a position on, by both engines."""
        at = self.held - 1
        for tile in range(len(self.recipe.tiles)):
            channels = self.recipe.tiles[tile][1]
            x = self.xs.at(n, tile, self.recipe.width, first)
            sums = self.sums.at(SUMS, tile, at + 1, at)
            nisa.tensor_reduce(dst=sums, op=nl.add, data=x, axis=1)
            k = self.columns - RECORD + 1
            nisa.activation(
                dst=self.read[0:channels, :],
                op=nl.square,
                data=x,
                scale=-1.0,
                bias=self.records.at(self.slot, tile, k + 1, k),
                reduce_op=nl.add,
                reduce_res=self.sums.at(SQUARES, tile, at + 1, at),
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )

    def fill_triples(self, tile: int) -> None:
        """Count, mean and count * variance of the shared positions of every whole step."""
        held, shared, stride = self.held, self.recipe.shared, self.recipe.stride
        steps = self.records.at(self.slot, tile, TRIPLE + held * stride, TRIPLE)
        mean, k = steps[:, 1::stride], steps[:, stride - RECORD + 1 :: stride]
        sums = self.sums.at(SUMS, tile, held)
        distances = self.sums.at(DISTANCES, tile, held)
        nisa.memset(dst=steps[:, 0::stride], value=float(shared))
        nisa.tensor_scalar(dst=mean, data=sums, op0=nl.multiply, operand0=1.0 / shared)
        nisa.tensor_tensor(dst=distances, data1=mean, data2=k, op=nl.subtract)
        nisa.scalar_tensor_tensor(
            dst=distances,
            data=distances,
            op0=nl.multiply,
            operand0=float(shared),
            op1=nl.multiply,
            operand1=distances,
        )
        nisa.tensor_tensor(
            dst=steps[:, 2::stride],
            data1=self.sums.at(SQUARES, tile, held),
            data2=distances,
            op=nl.subtract,
        )

    def combine(self) -> None:
        """The image so far, with the records that are held."""
        for tile in range(len(self.recipe.tiles)):
            records = self.records.at(self.slot, tile, self.columns)
            moments = self.moments.at(0, tile, 2)
            if self.recipe.shared > 0 and self.held > 0:
                self.fill_triples(tile)
            nisa.bn_aggr(dst=moments, data=records)
            so_far = records[:, 0:1]
            nisa.tensor_scalar(dst=so_far, data=so_far, op0=nl.add, operand0=float(self.counted))
            mean, variance = moments[:, 0:1], moments[:, 1:2]
            nisa.tensor_copy(dst=records[:, 1:2], src=mean, engine=nisa.engine.vector)
            nisa.tensor_tensor(dst=records[:, 2:3], data1=variance, data2=so_far, op=nl.multiply)
        self.held = 0
        self.columns = TRIPLE
        self.counted = 0
