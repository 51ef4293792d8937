"""Parts that kernels of several algorithms have: tiles in SBUF, loop iterations, activations."""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.recipe_parts import Place, Ring

OPERATORS = {
    "identity": nl.copy,
    "relu": nl.relu,
    "silu": nl.silu,
    "gelu": nl.gelu,
    "gelu_tanh": nl.gelu_apprx_tanh,
    "tanh": nl.tanh,
    "sigmoid": nl.sigmoid,
    "softplus": nl.softplus,
    "mish": nl.mish,
}
SLOPES = {"silu": nl.silu_dx, "gelu": nl.gelu_dx}  # of activations that the Scalar engine derives


class Pair(nl.NKIObject):
    """One tensor for each of two cores."""

    def __init__(self, first: nl.NkiTensor, second: nl.NkiTensor) -> None:
        self.first = first
        self.second = second

    def of(self, core: int) -> nl.NkiTensor:
        """The one for a core."""
        return self.first if core == 0 else self.second


def wait_for_both(result: nl.NkiTensor) -> None:
    """Neither core goes on before both have written their parts of a result.

    What runs next on a core reads all of it.
    """
    nisa.core_barrier(data=result, cores=(0, 1))


def fence(result: nl.NkiTensor) -> None:
    """A copy of a result onto itself: it reads all that loops stored, and so waits for it."""
    nisa.dma_copy(dst=result, src=result)


class Slots(nl.NKIObject):
    """Equal SBUF tiles that are used in turn; `held` is what each one holds, -1 for nothing."""

    def __init__(self, tiles: list[nl.NkiTensor]) -> None:
        self.tiles = tiles
        self.held = [-1] * len(tiles)
        self.next = 0

    def start_over(self) -> None:
        """Nothing is held, and the first slot is next."""
        self.held = [-1] * len(self.tiles)
        self.next = 0

    def find(self, what: int) -> int:
        """The slot that holds `what`, or -1."""
        for slot in range(len(self.held)):
            if self.held[slot] == what:
                return slot
        return -1

    def take(self, what: int) -> int:
        """The slot whose turn it is, from now on for `what`."""
        slot = self.next
        self.held[slot] = what
        self.next = (slot + 1) % len(self.tiles)
        return slot


class Banks(nl.NKIObject):
    """PSUM tensors of a bank each that are used in turn.

    Tensors are of the region that allocated them, the body of a loop or what lies between loops: no
    compiler takes one that comes from outside of a loop, or one that two loops mention.
    """

    def __init__(self, count: int, shape: tuple[int, int], dtype: str) -> None:
        self.count = count
        self.shape = shape
        self.dtype = dtype
        self.tiles: list[nl.NkiTensor] = []
        self.used = 0

    def open_region(self) -> None:
        """A loop begins or ends: what comes now has tensors of its own."""
        self.tiles = []
        self.used = 0

    def take(self) -> nl.NkiTensor:
        """The one whose turn it is."""
        if len(self.tiles) == 0:
            for _ in range(self.count):
                self.tiles.append(nl.ndarray(self.shape, dtype=self.dtype, buffer=nl.psum))
        self.used += 1
        return self.tiles[(self.used - 1) % self.count]


class Iteration(nl.NKIObject):
    """An iteration of a hardware loop: the offsets of its blocks, in cells of SBUF.

    Offsets into y are loaded when the first store needs them. Before that, the cells may still be
    read by the stores of the iteration before, and the loads of this one should not queue behind
    those.
    """

    def __init__(
        self,
        places: nl.NkiTensor,
        first_row: int,
        number: nisa.VirtualRegister,
        cells: tuple[int, int, int],
    ) -> None:
        """`cells`: their address, the tensors that x lies in, and blocks with offsets into them."""
        address, pieces, blocks = cells
        self.places = places
        self.first_row = first_row
        self.number = number
        self.blocks = blocks
        self.x_count = pieces * blocks
        y_count = places.shape[1] - self.x_count
        self.x_cells = sbuf((1, self.x_count), nl.int32, address)
        self.y_cells = sbuf((1, y_count), nl.int32, address + 4 * self.x_count)
        self.y_loaded = False
        self.load(self.x_cells, 0)

    def load(self, cells: nl.NkiTensor, first: int) -> None:
        """Some columns of the table of places, in the row of this iteration."""
        pitch = self.places.shape[1]
        row = self.places.ap(
            [[pitch, 1], [1, cells.shape[1]]],
            offset=self.first_row * pitch + first,
            scalar_offset=self.number,
            indirect_dim=0,
        )
        nisa.dma_copy(dst=cells, src=row)

    def x_cell(self, block: int, piece: int) -> nl.NkiTensor:
        """The cell with a block's offset into one of the tensors that x lies in."""
        at = piece * self.blocks + block
        return self.x_cells[0:1, at : at + 1]

    def y_cell(self, block: int) -> nl.NkiTensor:
        """The cell with a block's offset into y."""
        if not self.y_loaded:
            self.load(self.y_cells, self.x_count)
            self.y_loaded = True
        return self.y_cells[0:1, block : block + 1]


class Anchor(nl.NKIObject):
    """Where a block begins in x and y: at a place, or at the one that a loop's iteration reads."""

    def __init__(self, place: Place, iteration: Iteration | None, number: int) -> None:
        self.place = place
        self.iteration = iteration
        self.number = number  # among the blocks of an iteration

    def in_x(
        self, x: nl.NkiTensor, which: int, pattern: tuple[tuple[int, int], ...], at: int
    ) -> nl.NkiTensor:
        """A pattern of one of the tensors that x lies in, `at` elements from where it begins."""
        if self.iteration == None:
            return x.ap(listed(pattern), offset=self.place.x[which] + at)
        return at_cell(x, pattern, at, self.iteration.x_cell(self.number, which))

    def in_y(self, y: nl.NkiTensor, pattern: tuple[tuple[int, int], ...], at: int) -> nl.NkiTensor:
        """A pattern of y, or of a tensor of its shape, `at` elements from where it begins."""
        if self.iteration == None:
            return y.ap(listed(pattern), offset=self.place.y + at)
        return at_cell(y, pattern, at, self.iteration.y_cell(self.number))


def output(x: nl.NkiTensor, y_shape: tuple[int, ...], dtype: str) -> nl.NkiTensor:
    """y, in HBM; of x's type if none is named."""
    return nl.ndarray(
        y_shape, dtype=dtype if dtype != "" else x.dtype, buffer=nl.shared_hbm, name="y"
    )


def at_cell(
    tensor: nl.NkiTensor, pattern: tuple[tuple[int, int], ...], offset: int, cell: nl.NkiTensor
) -> nl.NkiTensor:
    """A pattern of an HBM tensor, at an offset in elements plus the one in a cell of SBUF.

    A device takes an offset beyond the dimension it is for as out of bounds: here that has all.
    """
    elems = 1
    for size in tensor.shape:
        elems *= size
    flat = tensor.reshape((elems,))
    return flat.ap(listed(pattern), offset=offset, scalar_offset=cell, indirect_dim=0)


def listed(pattern: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """A pattern as NKI takes it."""
    pairs = []
    for pair in pattern:
        pairs.append([pair[0], pair[1]])
    return pairs


def sbuf(shape: tuple[int, int], dtype: str, address: int) -> nl.NkiTensor:
    """A tile at a byte of every partition; with a negative one, where the compiler puts it."""
    if address < 0:
        return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, address=(0, address))


def ring(of: Ring, lines: int, dtype: str) -> list[nl.NkiTensor]:
    """The tiles a ring has room for."""
    tiles = []
    for slot in range(of.slots):
        tiles.append(sbuf((lines, of.elems), dtype, of.address + slot * of.pitch))
    return tiles
