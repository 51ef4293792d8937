"""NkiTensor: every view method against NumPy, on tensors whose elements are their own addresses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim import isa as nisa
from nkisim import language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.kernel import run
from nkisim.tensors.indirection import write_held
from nkisim.tensors.tensor import NkiTensor
from numbered_tensor import HBM, PSUM, SBUF, read, tensor
from repetition import examples


def is_view_of_strides(addresses):
    """Whether addresses are an affine function of the index, so that strides can express them."""
    return all(np.unique(np.diff(addresses, axis=a)).size <= 1 for a in range(addresses.ndim))


class Mirror:
    """A tensor and, as a NumPy array of the same shape, the addresses it should read."""

    def __init__(self, shape, region):
        self.view = tensor(shape, region)
        self.array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        self.on_chip = region is not HBM

    def free_dims(self, size=None):
        first = 1 if self.on_chip else 0
        dims = range(first, self.array.ndim)
        return [d for d in dims if size is None or self.array.shape[d] == size]

    def become(self, make, array):
        """Both sides take a step, or NKI refuses the one that strides cannot express."""
        if is_view_of_strides(array):
            self.view, self.array = make(), array
        else:
            with pytest.raises(NkiValidationError):
                make()


def step_slice(mirror, draw):
    dim = draw(st.integers(0, mirror.array.ndim - 1))
    start = draw(st.integers(0, mirror.array.shape[dim] - 1))
    end = draw(st.integers(start + 1, mirror.array.shape[dim]))
    step = draw(st.integers(1, 3))
    key = (slice(None),) * dim + (slice(start, end, step),)
    mirror.become(lambda: mirror.view.slice(dim, start, end, step), mirror.array[key])


def step_select(mirror, draw):
    dim = draw(st.integers(0, mirror.array.ndim - 1))
    index = draw(st.integers(0, mirror.array.shape[dim] - 1))
    array = np.take(mirror.array, [index], axis=dim)
    kept = (mirror.on_chip and (dim == 0 or array.ndim == 2)) or array.ndim == 1
    mirror.become(lambda: mirror.view.select(dim, index), array if kept else array.squeeze(dim))


def step_permute(mirror, draw):
    free = mirror.free_dims()
    dims = tuple(range(mirror.array.ndim - len(free))) + tuple(draw(st.permutations(free)))
    mirror.become(lambda: mirror.view.permute(dims), mirror.array.transpose(dims))


def step_broadcast(mirror, draw):
    if candidates := mirror.free_dims(1):
        dim, size = draw(st.sampled_from(candidates)), draw(st.integers(1, 3))
        shape = list(mirror.array.shape)
        shape[dim] = size
        mirror.become(
            lambda: mirror.view.broadcast(dim, size), np.broadcast_to(mirror.array, shape)
        )


def step_expand(mirror, draw):
    dim = draw(st.integers(1 if mirror.on_chip else 0, mirror.array.ndim))
    mirror.become(lambda: mirror.view.expand_dim(dim), np.expand_dims(mirror.array, dim))


def step_squeeze(mirror, draw):
    if mirror.array.ndim > 1 and (candidates := mirror.free_dims(1)):
        dim = draw(st.sampled_from(candidates))
        mirror.become(lambda: mirror.view.squeeze_dim(dim), mirror.array.squeeze(dim))


def factors(total, draw):
    first = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
    return first, total // first


def step_reshape_dim(mirror, draw):
    if candidates := mirror.free_dims():
        dim = draw(st.sampled_from(candidates))
        sizes = factors(mirror.array.shape[dim], draw)
        asked = draw(st.sampled_from([sizes, (-1, sizes[1]), (sizes[0], -1)]))
        shape = mirror.array.shape[:dim] + sizes + mirror.array.shape[dim + 1 :]
        mirror.become(lambda: mirror.view.reshape_dim(dim, asked), mirror.array.reshape(shape))


def step_flatten(mirror, draw):
    if candidates := mirror.free_dims():
        first = draw(st.sampled_from(candidates))
        last = draw(st.integers(first, mirror.array.ndim - 1))
        shape = (*mirror.array.shape[:first], -1, *mirror.array.shape[last + 1 :])
        mirror.become(lambda: mirror.view.flatten_dims(first, last), mirror.array.reshape(shape))


def step_reshape(mirror, draw):
    kept = mirror.array.shape[:1] if mirror.on_chip else ()
    outer, rest = factors(int(np.prod(mirror.array.shape[len(kept) :])), draw)
    shape = (*kept, outer, *factors(rest, draw))
    mirror.become(lambda: mirror.view.reshape(shape), mirror.array.reshape(shape))


def step_rearrange(mirror, draw):
    """Split every free dimension in two, shuffle the parts, and merge them in pairs."""
    fixed, src, split_shape, names = {}, [], [], []
    for dim, size in enumerate(mirror.array.shape):
        parts = (size,) if mirror.on_chip and dim == 0 else factors(size, draw)
        group = tuple(f"{dim}{letter}" for letter in "xy"[: len(parts)])
        fixed.update(list(zip(group, parts, strict=True))[:1])
        src.append(group if len(group) > 1 else group[0])
        split_shape += parts
        names += group
    pinned = 1 if mirror.on_chip else 0
    order = [*range(pinned), *draw(st.permutations(range(pinned, len(names))))]
    moved = mirror.array.reshape(split_shape).transpose(order)
    wanted = [names[i] for i in order]
    pairs = [tuple(wanted[i : i + 2]) for i in range(pinned, len(wanted), 2)]
    shape = [
        *moved.shape[:pinned],
        *(int(np.prod(moved.shape[i : i + 2])) for i in range(pinned, moved.ndim, 2)),
    ]
    dst = (*wanted[:pinned], *pairs)
    mirror.become(lambda: mirror.view.rearrange(tuple(src), dst, fixed), moved.reshape(shape))


STEPS = [
    step_slice,
    step_select,
    step_permute,
    step_broadcast,
    step_expand,
    step_squeeze,
    step_reshape_dim,
    step_flatten,
    step_reshape,
    step_rearrange,
]


def check(mirror):
    view, array = mirror.view, mirror.array
    assert (view.shape, view.ndim, view.size) == (array.shape, array.ndim, array.size)
    assert np.array_equal(read(view), array)
    rows = array.reshape(array.shape[0], -1) if mirror.on_chip else array.reshape(1, -1)
    assert view.is_contiguous() == bool(np.all(np.diff(rows, axis=1) == 1))
    addressed = np.full(view.shape, view.offset)
    for axis, (stride, count) in enumerate(view.get_pattern()):
        line = (np.arange(count) * stride).reshape(
            [-1 if a == axis else 1 for a in range(view.ndim)]
        )
        addressed = addressed + line
    assert np.array_equal(addressed, array)


@examples(60)
@given(st.data(), st.sampled_from([HBM, SBUF, PSUM]))
def test_chains_of_views_read_what_numpy_reads(data, region):
    sizes = st.integers(1, 6)
    least = 1 if region is HBM else 2
    mirror = Mirror(tuple(data.draw(st.lists(sizes, min_size=least, max_size=4))), region)
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5)):
        step(mirror, data.draw)
        check(mirror)


@pytest.mark.parametrize("step", STEPS)
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_each_view_method_after_a_slice_and_a_permute(step, data):
    region = data.draw(st.sampled_from([HBM, SBUF]))
    mirror = Mirror((4, 6, 1, 4), region)
    step_slice(mirror, data.draw)
    step_permute(mirror, data.draw)
    step(mirror, data.draw)
    check(mirror)


def test_the_mirror_notices_a_wrong_view():
    mirror = Mirror((4, 6), HBM)
    mirror.view = mirror.view.permute((1, 0)).reshape_dim(0, (3, 2))
    mirror.array = mirror.array.T.reshape(2, 3, 4)
    with pytest.raises(AssertionError):
        check(mirror)


@settings(deadline=None, max_examples=30)
@given(st.data(), st.sampled_from([HBM, SBUF]))
def test_writes_through_a_view_land_where_numpy_puts_them(data, region):
    mirror = Mirror((4, 6, 4), region)
    base = mirror.view
    for step in (step_slice, step_permute, step_select):
        step(mirror, data.draw)
    expected = np.arange(96, dtype=np.float32)
    expected[mirror.array.astype(int)] = -1 - np.arange(mirror.array.size).reshape(
        mirror.array.shape
    )
    write_held(mirror.view, -1 - np.arange(mirror.array.size, dtype=np.float32))
    assert np.array_equal(read(base).reshape(-1), expected)


DOCUMENTED = [
    ((128, 4, 8), lambda t: t.permute((0, 2, 1)), (128, 8, 4)),
    ((128, 1, 64), lambda t: t.broadcast(1, 8), (128, 8, 64)),
    ((128, 64), lambda t: t.expand_dim(1), (128, 1, 64)),
    ((128, 1, 64), lambda t: t.squeeze_dim(1), (128, 64)),
    ((128, 24), lambda t: t.reshape_dim(1, (4, 6)), (128, 4, 6)),
    ((128, 24), lambda t: t.reshape_dim(1, (4, -1)), (128, 4, 6)),
    ((128, 24), lambda t: t.reshape_dim(0, (128,)), (128, 24)),
    ((128, 2, 3, 4), lambda t: t.flatten_dims(1, 2), (128, 6, 4)),
    ((128, 4, 6), lambda t: t.reshape((128, 24)), (128, 24)),
    ((128, 4, 6), lambda t: t.reshape((128, 2, 12)), (128, 2, 12)),
    ((128, 4, 6), lambda t: t.reshape([128, -1]), (128, 24)),
    ((128, 64), lambda t: t.slice(1, 8, 24, 1), (128, 16)),
    ((128, 64), lambda t: t.slice(1, 0, 64, 2), (128, 32)),
    ((128, 64), lambda t: t.slice(1, 1, 64, 63), (128, 1)),
    ((128, 8, 64), lambda t: t.select(1, 3), (128, 64)),
    ((128, 64), lambda t: t.select(1, 3), (128, 1)),
    ((128, 64), lambda t: t.select(0, 3), (1, 64)),
    ((128, 24), lambda t: t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}), (128, 6, 4)),
]


@pytest.mark.parametrize(("shape", "make", "expected"), DOCUMENTED)
def test_documented_shapes_on_chip(shape, make, expected):
    assert make(tensor(shape, SBUF)).shape == expected


def test_methods_take_nkis_keyword_names():
    t = tensor((4, 1, 6), SBUF)
    assert t.slice(dim=2, start=1, end=5, step=2).shape == (4, 1, 2)
    assert t.select(dim=2, index=1).shape == (4, 1)
    assert t.permute(dims=(0, 2, 1)).shape == (4, 6, 1)
    assert t.broadcast(dim=1, size=3).shape == (4, 3, 6)
    assert t.expand_dim(dim=1).squeeze_dim(dim=1).shape == (4, 1, 6)
    assert t.reshape_dim(dim=2, shape=(2, 3)).shape == (4, 1, 2, 3)
    assert t.flatten_dims(start_dim=1, end_dim=2).shape == (4, 6)
    assert t.reshape(shape=(4, 6)).shape == (4, 6)
    turned = t.rearrange(src_pattern=("p", "a", "b"), dst_pattern=("p", "b", "a"), fixed_sizes={})
    assert turned.shape == (4, 6, 1)


REFUSED_ON_CHIP = {
    "permute: dims \\(1, 0, 2\\) on a tensor in sbuf": lambda t: t.permute((1, 0, 2)),
    "broadcast: dimension 0 on": lambda t: t[0:1].broadcast(0, 4),
    "expand_dim: dimension 0 on": lambda t: t.expand_dim(0),
    "squeeze_dim: dimension 0 on": lambda t: t[0:1].squeeze_dim(0),
    "reshape_dim: split of dimension 0": lambda t: t.reshape_dim(0, (2, 2)),
    "flatten_dims: dimensions 0..1": lambda t: t.flatten_dims(0, 1),
    "reshape: shape \\(2, 48\\) from \\(4, 4, 6\\)": lambda t: t.reshape((2, 48)),
}


@pytest.mark.parametrize("message", REFUSED_ON_CHIP)
def test_the_partition_dimension_stays_as_it_is(message):
    limit = "the partition dimension \\(0\\) of an on-chip or gathered tensor stays as it is"
    with pytest.raises(NkiValidationError, match=f"{message}(.|\n)*limit:  {limit}"):
        REFUSED_ON_CHIP[message](tensor((4, 4, 6), SBUF))
    with pytest.raises(NkiValidationError, match=message.replace("sbuf", "psum")):
        REFUSED_ON_CHIP[message](tensor((4, 4, 6), PSUM))


@pytest.mark.parametrize("message", REFUSED_ON_CHIP)
def test_hbm_has_no_partition_dimension(message):
    assert REFUSED_ON_CHIP[message](tensor((4, 4, 6), HBM)).storage is not None


REFUSED_EVERYWHERE = {
    "slice: 0:7:1 on dimension 2\n  limit:  0 <= start < end <= 6": lambda t: t.slice(2, 0, 7),
    "slice: 3:3:1": lambda t: t.slice(2, 3, 3),
    "slice: -2:6:1": lambda t: t.slice(2, -2, 6),
    "slice: 0:6:0": lambda t: t.slice(2, 0, 6, 0),
    "slice: dimension 3\n  limit:  dimensions 0..2": lambda t: t.slice(3, 0, 1),
    "slice: dimension -1": lambda t: t.slice(-1, 0, 1),
    "select: index 6 on dimension 2\n  limit:  0 <= index < 6": lambda t: t.select(2, 6),
    "select: index -1": lambda t: t.select(2, -1),
    "select: dimension -1": lambda t: t.select(-1, 0),
    "flatten_dims: (.|\n)*without gaps": lambda t: t.slice(2, 0, 3).flatten_dims(1, 2),
    "reshape: (.|\n)*scattered": lambda t: t.permute((0, 2, 1)).reshape((4, 24)),
    "rearrange: ": lambda t: t.rearrange(("p", "a"), ("a", "p")),
}


@pytest.mark.parametrize("region", [HBM, SBUF])
@pytest.mark.parametrize("message", REFUSED_EVERYWHERE)
def test_refusals_name_the_method_and_the_limit(message, region):
    with pytest.raises(NkiValidationError, match=message) as refusal:
        REFUSED_EVERYWHERE[message](tensor((4, 4, 6), region))
    assert refusal.value.remedy


@pytest.mark.parametrize("value", [2.0, "1", None])
def test_bounds_are_integers(value):
    with pytest.raises(TypeError, match="integer"):
        tensor((4, 6)).slice(1, 0, value)
    with pytest.raises(TypeError, match="integer"):
        tensor((4, 6)).select(1, value)


def test_a_tensor_compares_to_none_as_a_plain_bool():
    t = tensor((4, 6))
    assert (t == None) is False
    assert (t != None) is True
    assert (t == t[:]) is False
    assert t in [None, t]
    assert bool(t) is True


def test_a_tensor_is_not_iterable():
    with pytest.raises(TypeError, match="not iterable"):
        list(tensor((4, 6)))


def test_a_view_knows_its_place():
    t = tensor((4, 3, 6), SBUF)
    v = t[2:4, 1, 2:5]
    assert (v.offset, v.strides, v.start_partition) == (2 * 18 + 6 + 2, (18, 1), 2)
    assert (v.buffer, v.dtype, v.name, v.storage) == (SBUF, "float32", t.name, t.storage)
    assert v.get_pattern() == [[18, 2], [1, 3]]
    pattern = v.get_pattern()
    pattern[0][1] = 99
    assert v.shape == (2, 3)
    assert "(2, 3)" in repr(v)
    assert not v.is_indirect()


def test_contiguity_on_chip_ignores_partitions():
    assert tensor((4, 6), SBUF)[:, 2:4].is_contiguous()
    assert not tensor((4, 6), HBM)[:, 2:4].is_contiguous()
    assert tensor((4, 6), HBM)[1:3].is_contiguous()
    assert not tensor((4, 6), SBUF)[:, ::2].is_contiguous()
    assert tensor((4, 6), SBUF)[:, 0:1].is_contiguous()
    assert tensor((4,), SBUF).is_contiguous()
    assert tensor((4, 1, 6), HBM).permute((1, 0, 2)).is_contiguous()


def test_a_tensor_is_rebound_to_a_storage_of_the_same_bytes_only():
    storage = tensor((4, 6), SBUF).storage
    assert NkiTensor((4, 2, 3), "float32", storage, SBUF).strides == (6, 3, 1)
    assert NkiTensor((4, 12), "bfloat16", storage, SBUF).shape == (4, 12)
    with pytest.raises(NkiValidationError, match=r"float32 \(4, 5\) for storage(.|\n)*96 bytes"):
        NkiTensor((4, 5), "float32", storage, SBUF)
    with pytest.raises(NkiValidationError, match="partitions of the storage"):
        NkiTensor((6, 4), "float32", storage, SBUF)
    with pytest.raises(NkiValidationError, match="lives where its storage lives"):
        NkiTensor((4, 6), "float32", storage, PSUM)
    with pytest.raises(NkiValidationError, match="name 'other'"):
        NkiTensor((4, 6), "float32", storage, SBUF, "other")


def test_assignment_copies_into_the_view():
    def kernel(x):
        out = nl.ndarray((4, 6), x.dtype, nl.shared_hbm)
        tile = nl.ndarray((4, 6), x.dtype)
        half = nl.ndarray((4, 3), "bfloat16")
        tile[...] = x  # HBM to SBUF
        half[:, 0:3] = tile[:, ::2]  # on chip, with a cast
        tile[:, 3:6] = half
        out[...] = tile
        return out

    x = np.arange(24, dtype=np.float32).reshape(4, 6) + 0.5
    done = run(kernel, x, machine="trn2")
    expected = x.copy()
    expected[:, 3:6] = x[:, ::2]  # exact in bfloat16: at most 6 significant bits
    assert np.array_equal(done.outputs, expected)
    ops = [(i.op, i.engine.name) for i in done.trace.instructions()]
    copies = [("tensor_copy", "vector")] * 2
    assert ops == [("dma_copy", "dma"), *copies, ("dma_copy", "dma")]


def test_a_partition_step_is_refused_though_another_tile_has_the_same_strides():
    """64 elements from row to row: the pitch of one tile, two rows of the other."""

    def kernel(x):
        wide, narrow = nl.ndarray((64, 64), x.dtype), nl.ndarray((128, 32), x.dtype)
        dst = nl.ndarray((64, 32), x.dtype)
        nisa.memset(wide, 0.0)
        nisa.memset(narrow, 0.0)
        nisa.tensor_copy(dst, wide[:, 0:32])
        nisa.tensor_copy(dst, narrow[::2, :])

    with pytest.raises(NkiValidationError, match=r"src steps over partitions(.|\n)*stride 32"):
        run(kernel, np.zeros(1, np.float32), machine="trn2")
