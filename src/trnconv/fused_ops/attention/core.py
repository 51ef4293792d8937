"""What a core holds while it attends, and one region of queries through all their keys."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import Banks, listed
from trnconv.fused_ops.attention.recipe import AttentionRecipe, QueryRow

BLOCKS = 3  # of keys and values: in use, behind it, and on its way
LATE = 2  # items from scores to products
ITEMS = 4  # whose small tiles are held


class AttentionCore(nl.NKIObject):
    """Tiles in SBUF that all regions use."""

    def __init__(
        self,
        q: nl.NkiTensor,
        k: nl.NkiTensor,
        v: nl.NkiTensor,
        o: nl.NkiTensor,
        recipe: AttentionRecipe,
    ) -> None:
        self.q = q
        self.k = k
        self.v = v
        self.o = o
        self.recipe = recipe
        lines, block, depth = recipe.lines, recipe.block, recipe.shape[2]
        deep, elems = recipe.depth
        tiles = recipe.tiles
        self.queries = sbuf_tiles(1, (elems, deep, tiles * lines), q.dtype)[0]
        self.keys = sbuf_tiles(BLOCKS, (elems, deep, block), k.dtype)
        self.values = sbuf_tiles(BLOCKS, (lines, block // lines, depth), v.dtype)
        self.weights = sbuf_tiles(ITEMS, (lines, block), v.dtype)
        self.transposed_weights = sbuf_tiles(ITEMS, (lines, block // lines, lines), v.dtype)
        halves = -(-block // recipe.bank)
        self.maxima = [
            sbuf_tiles(tiles, (lines, 1 + halves), nl.float32),
            sbuf_tiles(tiles, (lines, 1 + halves), nl.float32),
        ]
        self.shifts = sbuf_tiles(ITEMS, (lines, 1), nl.float32)
        self.factors = sbuf_tiles(ITEMS, (lines, 1), nl.float32)
        self.item_sums = sbuf_tiles(ITEMS, (lines, 1), nl.float32)
        self.sums = sbuf_tiles(tiles, (lines, 1), nl.float32)
        self.outs = sbuf_tiles(tiles, (lines, depth), nl.float32)
        self.results = sbuf_tiles(ITEMS, (lines, depth), o.dtype)


def sbuf_tiles(count: int, shape: tuple[int, ...], dtype: str) -> list[nl.NkiTensor]:
    """Equal tiles."""
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf))  # noqa: PERF401 (NKI 0.6)
    return tiles


class QueryRegion(nl.NKIObject):
    """Some queries through all keys that they see, in items: a tile of them by a block of keys."""

    def __init__(
        self, core: AttentionCore, row: QueryRow, counter: nisa.VirtualRegister | None
    ) -> None:
        self.core = core
        self.recipe = core.recipe
        self.row = row
        self.counter = counter
        recipe = core.recipe
        self.tiles = -(-row.count // recipe.lines)
        self.height = -(-row.count // self.tiles)  # about equal: few queries are a slow matmul
        self.blocks = -(-row.keys // recipe.block)
        self.scores = Banks(4, (recipe.lines, recipe.bank), nl.float32)
        self.transposed: list[nl.NkiTensor] = []
        self.transposes = 0
        self.products = Banks(2, (recipe.lines, recipe.shape[2]), nl.float32)

    def run(self) -> None:
        """Item after item."""
        items = self.tiles * self.blocks
        shape = (self.recipe.lines, self.recipe.bank // self.recipe.lines, self.recipe.lines)
        for _ in range(2):
            bank = nl.ndarray(shape, dtype=self.core.v.dtype, buffer=nl.psum)
            self.transposed.append(bank)
        self.load_keys(0)
        self.load_queries()
        self.load_values(0)
        for n in range(items + LATE):
            if n < items:
                self.score(n)
            if n >= LATE:
                self.multiply(n - LATE)
                if (n - LATE) // self.tiles + 1 == self.blocks:
                    self.finish((n - LATE) % self.tiles)
            if n >= 1 and n <= items:
                self.transpose(n - 1)
            if n < items and n % self.tiles == 0 and n // self.tiles + 1 < self.blocks:
                self.load_keys(n // self.tiles + 1)
                self.load_values(n // self.tiles + 1)

    def queries_of(self, n: int) -> int:
        """Queries of an item."""
        return min(self.height, self.row.count - n % self.tiles * self.height)

    def keys_of(self, block: int) -> int:
        """Keys of a block."""
        return min(self.recipe.block, self.row.keys - block * self.recipe.block)

    def at_query(
        self, tensor: nl.NkiTensor, pattern: tuple[tuple[int, int], ...], offset: int
    ) -> nl.NkiTensor:
        """A pattern of q or o, from the first query of the region on."""
        images, tokens, depth = self.recipe.shape
        rows = tensor.reshape((images * tokens, depth))
        at = (self.row.image * tokens + self.row.first) * depth + offset
        if self.row.iterations == 1:
            return rows.ap(listed(pattern), offset=at)
        return rows.ap(listed(pattern), offset=at, scalar_offset=self.counter, indirect_dim=0)

    def load_queries(self) -> None:
        """All queries of the region, elements of a head on partitions."""
        deep, elems = self.recipe.depth
        pattern = ((deep * elems, self.row.count), (elems, deep), (1, elems))
        src = self.at_query(self.core.q, pattern, 0)
        nisa.dma_transpose(dst=self.core.queries[:, :, 0 : self.row.count], src=src)

    def at_key(self, tensor: nl.NkiTensor, pattern: list[list[int]], key: int) -> nl.NkiTensor:
        """A pattern of k or v, from a key on."""
        images, tokens, depth = self.recipe.shape
        flat = tensor.reshape((images * tokens * depth,))
        return flat.ap(pattern, offset=(self.row.image * tokens + key) * depth)

    def load_keys(self, block: int) -> None:
        """Keys of a block, elements of a head on partitions."""
        deep, elems = self.recipe.depth
        keys = self.keys_of(block)
        pattern = [[deep * elems, keys], [elems, deep], [1, elems]]
        src = self.at_key(self.core.k, pattern, block * self.recipe.block)
        nisa.dma_transpose(dst=self.core.keys[block % BLOCKS][:, :, 0:keys], src=src)

    def load_values(self, block: int) -> None:
        """Values of a block, keys on partitions."""
        depth, lines, keys = self.recipe.shape[2], self.recipe.lines, self.keys_of(block)
        first, whole = block * self.recipe.block, keys // lines
        values = self.core.values[block % BLOCKS]
        if whole > 0:
            pattern = [[depth, lines], [lines * depth, whole], [1, depth]]
            src = self.at_key(self.core.v, pattern, first)
            nisa.dma_copy(dst=values[:, 0:whole, :], src=src)
        left = keys - whole * lines
        if left > 0:
            src = self.at_key(self.core.v, [[depth, left], [1, depth]], first + whole * lines)
            nisa.dma_copy(dst=values[0:left, whole, :], src=src)

    def score(self, n: int) -> None:
        """Scores, their maximum so far, and exp of what they are below it, with its sum."""
        core, recipe = self.core, self.recipe
        block, tile, queries = n // self.tiles, n % self.tiles, self.queries_of(n)
        keys, slot = self.keys_of(block), block % BLOCKS
        maxima = core.maxima[block % 2][tile]
        banks: list[nl.NkiTensor] = []
        for first in range(0, keys, recipe.bank):
            count = min(recipe.bank, keys - first)
            bank = self.scores.take()[0:queries, 0:count]
            for deep in range(recipe.depth[0]):
                at = tile * self.height
                nisa.nc_matmul(
                    dst=bank,
                    stationary=core.queries[:, deep, at : at + queries],
                    moving=core.keys[slot][:, deep, first : first + count],
                    accumulate=deep > 0,
                )
            column = 1 + len(banks)
            dst = maxima[0:queries, column : column + 1]
            nisa.tensor_reduce(dst=dst, op=nl.maximum, data=bank, axis=1)
            banks.append(bank)
        self.follow(n, maxima[0:queries, (1 if block == 0 else 0) : 1 + len(banks)])
        for number in range(len(banks)):
            self.weigh(n, number, banks)

    def follow(self, n: int, maxima: nl.NkiTensor) -> None:
        """The maximum so far, and what earlier sums are multiplied by."""
        core, block, tile = self.core, n // self.tiles, n % self.tiles
        queries = self.queries_of(n)
        largest = core.maxima[1 - block % 2][tile][0:queries, 0:1]
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=maxima, axis=1)
        shift = core.shifts[n % ITEMS][0:queries, :]
        nisa.tensor_scalar(dst=shift, data=largest, op0=nl.multiply, operand0=-self.recipe.scale)
        if block > 0:
            nisa.activation(
                dst=core.factors[n % ITEMS][0:queries, :],
                op=nl.exp,
                data=maxima[:, 0:1],
                scale=self.recipe.scale,
                bias=shift,
            )

    def weigh(self, n: int, number: int, banks: list[nl.NkiTensor]) -> None:
        """exp(scale * (score - maximum)) of some keys; the sum of all is complete with the last."""
        core, first = self.core, number * self.recipe.bank
        queries, count = banks[number].shape[0], banks[number].shape[1]
        is_last = number + 1 == len(banks)
        start, go_on = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
        nisa.activation(
            dst=core.weights[n % ITEMS][0:queries, first : first + count],
            op=nl.exp,
            data=banks[number],
            scale=self.recipe.scale,
            bias=core.shifts[n % ITEMS][0:queries, :],
            reduce_op=nl.add,
            reduce_cmd=start if number == 0 else go_on,
            reduce_res=core.item_sums[n % ITEMS][0:queries, :] if is_last else None,
        )

    def transpose(self, n: int) -> None:
        """Weights of an item with keys on partitions."""
        core, recipe = self.core, self.recipe
        queries, keys = self.queries_of(n), self.keys_of(n // self.tiles)
        for first in range(0, keys, recipe.bank):
            end = min(first + recipe.bank, keys)
            bank = self.transposed[self.transposes % 2]
            self.transposes += 1
            for at in range(first, end, recipe.lines):
                count = min(recipe.lines, end - at)
                nisa.nc_transpose(
                    dst=bank[0:count, (at - first) // recipe.lines, 0:queries],
                    data=core.weights[n % ITEMS][0:queries, at : at + count],
                )
            self.take_out(n, bank, first, end)

    def take_out(self, n: int, bank: nl.NkiTensor, first: int, end: int) -> None:
        """From PSUM to SBUF: what has keys on all partitions, then what is left."""
        lines, queries = self.recipe.lines, self.queries_of(n)
        turned = self.core.transposed_weights[n % ITEMS]
        at, whole = first // lines, (end - first) // lines
        if whole > 0:
            nisa.tensor_copy(
                dst=turned[:, at : at + whole, 0:queries],
                src=bank[:, 0:whole, 0:queries],
                engine=nisa.engine.vector,
            )
        left = end - first - whole * lines
        if left > 0:
            nisa.tensor_copy(
                dst=turned[0:left, at + whole, 0:queries],
                src=bank[0:left, whole, 0:queries],
                engine=nisa.engine.vector,
            )

    def multiply(self, n: int) -> None:
        """Weights by values, added to what blocks before gave."""
        core, lines = self.core, self.recipe.lines
        block, tile, queries = n // self.tiles, n % self.tiles, self.queries_of(n)
        keys = self.keys_of(block)
        bank = self.products.take()[0:queries, :]
        for first in range(0, keys, lines):
            count = min(lines, keys - first)
            nisa.nc_matmul(
                dst=bank,
                stationary=core.transposed_weights[n % ITEMS][0:count, first // lines, 0:queries],
                moving=core.values[block % BLOCKS][0:count, first // lines, :],
                accumulate=first > 0,
            )
        out, sums = core.outs[tile][0:queries, :], core.sums[tile][0:queries, :]
        added = core.item_sums[n % ITEMS][0:queries, :]
        if block == 0:
            nisa.tensor_copy(dst=out, src=bank, engine=nisa.engine.vector)
            nisa.tensor_copy(dst=sums, src=added, engine=nisa.engine.vector)
        else:
            factor = core.factors[n % ITEMS][0:queries, :]
            add_scaled(out, factor, bank)
            add_scaled(sums, factor, added)

    def finish(self, tile: int) -> None:
        """o of a tile: divided by the sum of weights, rounded once."""
        core, depth = self.core, self.recipe.shape[2]
        queries = self.queries_of(tile)
        sums = core.sums[tile][0:queries, :]
        nisa.reciprocal(dst=sums, data=sums)
        result = core.results[tile % ITEMS][0:queries, :]
        out = core.outs[tile][0:queries, :]
        nisa.activation(dst=result, op=nl.copy, data=out, scale=sums)
        offset = tile * self.height * depth
        dst = self.at_query(core.o, ((depth, queries), (1, depth)), offset)
        nisa.dma_copy(dst=dst, src=result)


def add_scaled(total: nl.NkiTensor, factor: nl.NkiTensor, added: nl.NkiTensor) -> None:
    """total = total * factor + added."""
    nisa.scalar_tensor_tensor(
        dst=total, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=added
    )
