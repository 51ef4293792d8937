"""Random kernels with a model of their own: every element of every view by explicit arithmetic.

A program is a list of steps on tiles. `Model` runs it on NumPy arrays, element by element through
computed addresses; nothing of nkisim is used for that, neither its views nor its numerics.
`kernel_of` makes the same program an NKI kernel. Values are chosen such that every sum is exact in
float32, so results are compared bit for bit. Some programs have a result that meets itself or part
of an operand; the model finds that from the addresses, and the kernel is expected to be refused.
"""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

import nkisim.isa as nisa
import nkisim.language as nl

DTYPES = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "int32": np.dtype(np.int32),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
}
FLOATS = ("float32", "bfloat16", "float16")
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
UNARY = {
    "copy": lambda x: x,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "square": lambda x: x * x,
    "abs": np.abs,
}
EXACT = 2.0**24  # integers up to here are float32
PITCH_MAX = 24


@dataclass(frozen=True)
class Tile:
    """A tensor of a program: `where` is x (an argument), sbuf, psum or out."""

    number: int
    where: str
    dtype: str
    partitions: int
    columns: int


@dataclass(frozen=True)
class View:
    """`count` partitions from `first` on, and a pattern of (stride, count) inside each."""

    tile: Tile
    first: int
    count: int
    offset: int
    pattern: tuple

    @property
    def shape(self):
        return (self.count, *(n for _, n in self.pattern))

    def addresses(self):
        """The element of the tile that every element of the view is."""
        total = np.arange(self.first, self.first + self.count, dtype=np.int64) * self.tile.columns
        total = total + self.offset
        for stride, n in self.pattern:
            total = total[..., None] + stride * np.arange(n, dtype=np.int64)
        return total


@dataclass
class Step:
    """One instruction: its name, the view it writes, those it reads, and the rest."""

    op: str
    dst: View
    reads: tuple = ()
    extra: dict = field(default_factory=dict)


class UndefinedError(Exception):
    """The model says that the step is undefined."""


class Model:
    """What every tile holds, as a flat array of its own type."""

    def __init__(self):
        self.data = {}
        self.summed = {}  # PSUM elements that a matmul has written

    def allocate(self, tile, values=None):
        kind = DTYPES[tile.dtype]
        size = tile.partitions * tile.columns
        if values is None:
            fresh = np.nan if tile.dtype in FLOATS else 4
            values = np.full(size, fresh).astype(kind)
        self.data[tile] = np.asarray(values, kind).reshape(-1).copy()
        self.summed[tile] = np.zeros(size, bool)

    def read(self, view):
        return self.data[view.tile][view.addresses()]

    def floats(self, view):
        return self.read(view).astype(np.float32)

    def write(self, view, values):
        """`values` are float32, or already of the tile's type."""
        self.data[view.tile][view.addresses()] = cast(values, view.tile.dtype).reshape(view.shape)
        self.summed[view.tile][view.addresses()] = False

    def run(self, step):
        self.refuse_undefined(step)
        getattr(self, f"_{step.op}")(step)

    def refuse_undefined(self, step):
        """An element written twice, or an operand that is partly the result."""
        written = step.dst.addresses().ravel()
        at_once = step.op in ("dma_copy", "nc_matmul", "nc_transpose")
        distinct = [pair for pair in step.dst.pattern if pair[0] or at_once]
        expected = step.dst.count * int(np.prod([n for _, n in distinct], dtype=int))
        if len(set(written.tolist())) != expected:
            raise UndefinedError("writes an element once")
        for read in step.reads:
            if read.tile == step.dst.tile:
                source = read.addresses().ravel()
                same = len(source) == len(written) and (source == written).all()
                alone = step.op == "tensor_reduce" and len(written) == step.dst.count
                if not same and not alone and set(source.tolist()) & set(written.tolist()):
                    raise UndefinedError("share no byte")

    def _dma_copy(self, step):
        (src,) = step.reads
        same = src.tile.dtype == step.dst.tile.dtype
        self.write(step.dst, self.read(src) if same else self.floats(src))

    _tensor_copy = _dma_copy

    def _memset(self, step):
        self.write(step.dst, np.full(step.dst.shape, step.extra["value"], np.float32))

    def _tensor_tensor(self, step):
        one, two = (self.floats(view).reshape(step.dst.shape) for view in step.reads)
        self.write(step.dst, BINARY[step.extra["op"]](one, two))

    def _tensor_scalar(self, step):
        result = self.floats(step.reads[0])
        columns = iter(step.reads[1:])
        for name, operand in step.extra["ops"]:
            other = np.float32(0 if operand is None else operand)
            if operand is None:
                column = self.floats(next(columns))
                other = column.reshape(-1, *(1,) * (result.ndim - 1))
            result = BINARY[name](result, other)
        self.write(step.dst, result)

    def _tensor_reduce(self, step):
        data = self.floats(step.reads[0])
        reduce = BINARY[step.extra["op"]].reduce
        self.write(step.dst, reduce(data, axis=-1).reshape(step.dst.shape))

    def _activation(self, step):
        data = self.floats(step.reads[0]) * np.float32(step.extra["scale"])
        if len(step.reads) > 1:
            data = data + self.floats(step.reads[1]).reshape(-1, *(1,) * (data.ndim - 1))
        self.write(step.dst, UNARY[step.extra["op"]](data))

    def _reciprocal(self, step):
        with np.errstate(divide="ignore"):
            self.write(step.dst, np.float32(1) / self.floats(step.reads[0]))

    def _nc_matmul(self, step):
        stationary, moving = (self.floats(view) for view in step.reads)
        product = np.einsum("km,kn->mn", stationary, moving.reshape(len(moving), -1))
        product = product.astype(np.float32).reshape(step.dst.shape)
        where = step.dst.addresses()
        accumulate = step.extra["accumulate"]
        adds = self.summed[step.dst.tile][where] if accumulate is None else accumulate
        before = np.where(adds, self.floats(step.dst), np.float32(0))
        self.write(step.dst, before + product)
        self.summed[step.dst.tile][where] = True

    def _nc_transpose(self, step):
        data = self.read(step.reads[0])
        self.write(step.dst, np.swapaxes(data.reshape(len(data), -1), 0, 1))


def cast(values, dtype):
    """float32 to a type: nearest, ties to even; integers saturate."""
    kind = DTYPES[dtype]
    if values.dtype == kind:
        return values
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return values.astype(kind)
    limits = np.iinfo(kind)
    rounded = np.rint(values.astype(np.float64))
    return np.clip(rounded, limits.min, limits.max).astype(kind)


class Maker:
    """Makes up one program; every step is run by the model at once, to know what is exact."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.model = Model()
        self.tiles = []
        self.steps = []
        self.refusal = None

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def make(self):
        for _ in range(self.number(1, 2)):
            self.argument()
        for _ in range(self.number(3, 5)):
            self.filled_tile()
        for _ in range(self.number(3, 9)):
            if self.refusal is None:
                self.step()
        return self

    def tile(self, where, dtype=None, partitions=None, columns=None):
        tile = Tile(
            len(self.tiles),
            where,
            dtype or self.pick(*DTYPES),
            partitions or self.pick(1, 3, 16, 32, 33, 64, 128),
            columns or self.number(1, PITCH_MAX),
        )
        self.tiles.append(tile)
        return tile

    def argument(self):
        tile = self.tile("x")
        low = 0 if tile.dtype == "uint8" else -4
        values = self.rng.integers(low, 5, (tile.partitions, tile.columns))
        self.model.allocate(tile, values)

    def filled_tile(self, **kind):
        """A tile in SBUF, loaded in part or in whole, or set."""
        tile = self.tile("sbuf", **kind)
        self.model.allocate(tile)
        whole = View(tile, 0, tile.partitions, 0, ((1, tile.columns),))
        if self.rng.random() < 0.5:
            value = self.number(0, 3) if tile.dtype == "uint8" else self.number(-3, 3)
            self.add(Step("memset", whole, extra={"value": value}))
        else:
            columns = whole if self.rng.random() < 0.7 else self.view(tile, engine=False)
            source = self.like(columns, [t for t in self.tiles if t.where == "x"], engine=False)
            if source is not None:
                self.add(Step("dma_copy", columns, (source,)))
        return tile

    def view(self, tile, partitions=None, elems=None, *, engine=True):
        """Some view of a tile, of so many elements a partition if that is asked and possible."""
        count = partitions or self.number(1, tile.partitions)
        if count > tile.partitions:
            return None
        starts = range(tile.partitions - count + 1)
        if engine:
            unit = 128 if count > 64 else 64 if count > 32 else 32
            starts = [p for p in starts if p % unit == 0]
        first = self.pick(*starts)
        return self.columns(tile, first, count, elems)

    def columns(self, tile, first, count, elems):
        for _ in range(12):
            counts = self.counts(elems) if elems else [self.number(1, 6), self.number(1, 6)]
            pattern = self.pattern(counts)
            reach = sum(s * (n - 1) for s, n in pattern)
            if reach < tile.columns:
                offset = self.number(0, tile.columns - 1 - reach)
                return View(tile, first, count, offset, pattern)
        if elems and elems <= tile.columns:
            return View(tile, first, count, 0, ((1, elems),))
        return None if elems else View(tile, first, count, 0, ((1, tile.columns),))

    def pattern(self, counts):
        """Strides for counts: rows of a tile, columns of it, or, rarely, any."""
        if self.rng.random() < 0.02:
            return tuple((self.pick(0, 1, 2, 3), n) for n in counts)
        order = range(len(counts)) if self.rng.random() < 0.3 else reversed(range(len(counts)))
        strides, span = {}, 1
        for dim in order:
            strides[dim] = span + self.pick(0, 0, 0, 1, 2)
            span += strides[dim] * (counts[dim] - 1)
        return tuple((strides[dim], n) for dim, n in enumerate(counts))

    def counts(self, elems):
        divisors = [n for n in range(1, elems + 1) if elems % n == 0]
        outer = self.pick(*divisors)
        return [elems // outer] if outer == 1 else [outer, elems // outer]

    def like(self, view, tiles, *, engine=True):
        """A view with as many partitions and elements as another one."""
        elems = int(np.prod(view.shape[1:], dtype=int))
        if self.rng.random() < 0.1:
            return view if view.tile in tiles else None
        if self.rng.random() < 0.9:
            tiles = [tile for tile in tiles if tile != view.tile]
        for _ in range(6):
            if not tiles:
                return None
            found = self.view(self.pick(*tiles), view.count, elems, engine=engine)
            if found is not None:
                return found
        return None

    def on_chip(self, *dtypes):
        kinds = dtypes or tuple(DTYPES)
        return [t for t in self.tiles if t.where == "sbuf" and t.dtype in kinds]

    def column(self, count):
        """A (P, 1) operand in float32."""
        for tile in self.on_chip("float32"):
            if tile.partitions >= count:
                return View(tile, 0, count, self.number(0, tile.columns - 1), ((1, 1),))
        return None

    def finite(self, *views):
        with np.errstate(all="ignore"):
            return all(np.isfinite(self.model.floats(view)).all() for view in views)

    def sums_exactly(self, values):
        whole = bool(np.isfinite(values).all() and (values == np.rint(values)).all())
        return whole and float(np.abs(values.astype(np.float64)).sum()) < EXACT

    def add(self, step):
        """Run a step in the model; what the model calls undefined ends the program."""
        if step.dst.tile.dtype not in FLOATS and not self.finite(*step.reads):
            return
        try:
            self.model.run(step)
        except UndefinedError as refusal:
            self.refusal = str(refusal)
        self.steps.append(step)

    def step(self):
        getattr(self, f"make_{self.pick(*MAKERS)}")()

    def make_dma_copy(self):
        dst = self.view(self.pick(*self.on_chip()), engine=False)
        tiles = [t for t in self.tiles if t.where in ("x", "sbuf")]
        src = self.like(dst, tiles, engine=False)
        if src is not None:
            self.add(Step("dma_copy", dst, (src,)))

    def make_tensor_copy(self):
        dst = self.view(self.pick(*self.on_chip()))
        src = self.like(dst, self.on_chip())
        if src is not None:
            self.add(Step("tensor_copy", dst, (src,)))

    def make_memset(self):
        dst = self.view(self.pick(*self.on_chip()))
        self.add(Step("memset", dst, extra={"value": self.number(0, 7)}))

    def make_tensor_tensor(self):
        dst = self.view(self.pick(*self.on_chip()))
        views = [self.like(dst, self.on_chip()) for _ in range(2)]
        if None not in views and self.finite(*views):
            self.add(Step("tensor_tensor", dst, tuple(views), {"op": self.pick(*BINARY)}))

    def make_tensor_scalar(self):
        dst = self.view(self.pick(*self.on_chip()))
        data = self.like(dst, self.on_chip())
        if data is None or not self.finite(data):
            return
        reads, ops = [data], []
        for _ in range(self.number(1, 2)):
            column = self.column(dst.count) if self.rng.random() < 0.4 else None
            if column is not None and self.finite(column):
                reads.append(column)
                ops.append((self.pick(*BINARY), None))
            else:
                ops.append((self.pick(*BINARY), self.number(-3, 3) / 2))
        self.add(Step("tensor_scalar", dst, tuple(reads), {"ops": ops}))

    def make_tensor_reduce(self):
        data = self.view(self.pick(*self.on_chip()))
        op = self.pick("add", "maximum", "minimum")
        if len(data.pattern) != 2 or not self.finite(data):
            return
        if op == "add" and not self.sums_exactly(self.model.floats(data)):
            return
        dst = self.view(self.pick(*self.on_chip()), data.count, data.shape[1])
        if dst is not None:
            self.add(Step("tensor_reduce", dst, (data,), {"op": op}))

    def make_activation(self):
        dst = self.view(self.pick(*self.on_chip()))
        data = self.like(dst, self.on_chip())
        if data is None or not self.finite(data):
            return
        bias = self.column(dst.count) if self.rng.random() < 0.4 else None
        reads = (data,) if bias is None or not self.finite(bias) else (data, bias)
        extra = {"op": self.pick(*UNARY), "scale": self.pick(1.0, 0.5, 2.0, -1.0)}
        self.add(Step("activation", dst, reads, extra))

    def make_reciprocal(self):
        dst = self.view(self.pick(*self.on_chip()))
        data = self.like(dst, self.on_chip())
        if data is not None and dst.tile.dtype in FLOATS and self.finite(data):
            self.add(Step("reciprocal", dst, (data,)))

    def make_nc_matmul(self):
        """One to three products into rectangles of a PSUM tile, and its eviction."""
        dtype, deep = self.pick("bfloat16", "float32", "float16"), self.pick(1, 16, 32, 64, 128)
        rows, columns = self.pick(1, 16, 32, 64, 128), self.number(1, PITCH_MAX)
        factors = [
            self.filled_tile(dtype=dtype, partitions=deep, columns=max(wide, 1))
            for wide in (rows, columns)
        ]
        total = self.tile("psum", "float32", rows, columns)
        self.model.allocate(total)
        for position in range(self.number(1, 3)):
            first = self.number(0, columns - 1)
            wide = self.number(1, columns - first)
            stationary = View(factors[0], 0, deep, 0, ((1, rows),))
            moving = View(factors[1], 0, deep, self.number(0, columns - wide), ((1, wide),))
            dst = View(total, 0, rows, first, ((1, wide),))
            if not self.finite(stationary, moving):
                break
            products = np.abs(self.model.floats(stationary)).max() * np.abs(
                self.model.floats(moving)
            )
            if not self.sums_exactly(np.concatenate([products.ravel()] * 4)):
                break
            flag = self.pick(None, False) if position else self.pick(None, None, False)
            self.add(Step("nc_matmul", dst, (stationary, moving), {"accumulate": flag}))
        result = self.tile("sbuf", self.pick(*FLOATS), rows, columns)
        self.model.allocate(result)
        whole = ((1, columns),)
        self.add(
            Step("tensor_copy", View(result, 0, rows, 0, whole), (View(total, 0, rows, 0, whole),))
        )

    def make_nc_transpose(self):
        tiles = [t for t in self.on_chip("bfloat16", "float32") if t.columns in (16, 8, 24)]
        source = (
            self.pick(*tiles)
            if tiles
            else self.filled_tile(dtype="bfloat16", partitions=self.pick(16, 32, 64), columns=16)
        )
        view = View(source, 0, source.partitions, 0, ((1, source.columns),))
        if not self.finite(view):
            return
        total = self.tile("psum", source.dtype, source.columns, source.partitions)
        self.model.allocate(total)
        dst = View(total, 0, source.columns, 0, ((1, source.partitions),))
        self.add(Step("nc_transpose", dst, (view,)))
        result = self.tile("sbuf", source.dtype, source.columns, source.partitions)
        self.model.allocate(result)
        self.add(
            Step(
                "tensor_copy",
                View(result, *[getattr(dst, n) for n in ("first", "count", "offset", "pattern")]),
                (dst,),
            )
        )


MAKERS = tuple(name.removeprefix("make_") for name in vars(Maker) if name.startswith("make_"))


def arguments_of(program):
    """The arrays a program is called with, before it ran: they are never written."""
    return [
        program.model.data[tile].reshape(tile.partitions, tile.columns)
        for tile in program.tiles
        if tile.where == "x"
    ]


def kernel_of(program, *, outputs=True):
    """The program as a kernel that returns every tile it has in SBUF."""

    def kernel(*arrays):
        given = iter(arrays)
        tensors = {}
        for tile in program.tiles:
            buffer = nl.psum if tile.where == "psum" else nl.sbuf
            shape = (tile.partitions, tile.columns)
            fresh = tile.where != "x"
            tensors[tile] = nl.ndarray(shape, tile.dtype, buffer) if fresh else next(given)
        for step in program.steps:
            issue(step, lambda view: made(tensors[view.tile], view))
        results = []
        for tile in program.tiles:
            if tile.where == "sbuf" and outputs:
                out = nl.ndarray((tile.partitions, tile.columns), tile.dtype, nl.shared_hbm)
                nisa.dma_copy(out, tensors[tile])
                results.append(out)
        return tuple(results)

    return kernel


def made(tensor, view):
    """A view of a tensor: by slices where those reach it, else by a raw pattern."""
    rows = slice(view.first, view.first + view.count)
    if len(view.pattern) == 1 and view.pattern[0][0] > 0:
        ((stride, count),) = view.pattern
        end = view.offset + stride * (count - 1) + 1
        return tensor[rows, view.offset : end : stride]
    pattern = [[view.tile.columns, view.count], *([s, n] for s, n in view.pattern)]
    return tensor.ap(pattern, offset=view.first * view.tile.columns + view.offset)


def issue(step, view):
    """One step by nisa."""
    dst, reads, extra = view(step.dst), [view(each) for each in step.reads], step.extra
    if step.op in ("dma_copy", "tensor_copy", "reciprocal", "nc_transpose"):
        getattr(nisa, step.op)(dst, reads[0])
    elif step.op == "memset":
        nisa.memset(dst, extra["value"])
    elif step.op == "tensor_tensor":
        nisa.tensor_tensor(dst, *reads, getattr(nl, extra["op"]))
    elif step.op == "tensor_scalar":
        columns = iter(reads[1:])
        options = {}
        for number, (name, operand) in enumerate(extra["ops"]):
            options[f"op{number}"] = getattr(nl, name)
            options[f"operand{number}"] = next(columns) if operand is None else operand
        nisa.tensor_scalar(dst, reads[0], **options)
    elif step.op == "tensor_reduce":
        nisa.tensor_reduce(dst, getattr(nl, extra["op"]), reads[0], axis=2)
    elif step.op == "activation":
        bias = {"bias": reads[1]} if len(reads) > 1 else {}
        nisa.activation(dst, getattr(nl, extra["op"]), reads[0], scale=extra["scale"], **bias)
    else:
        nisa.nc_matmul(dst, *reads, accumulate=extra["accumulate"])
