"""Element by element: rotary embeddings, a cumulative sum, a sum in dynamic loops."""

import numpy as np
import pytest

from nki_library import EXACT, Case, Tolerance, bfloat16, narrow, widened

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]


# The library's test_cumsum.py: atol 1e-3 (hidden sizes below 5000), rtol 1e-2 for bfloat16 and 1e-3
# for float32.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "dtype", "rtol"),
    [
        ((1, 256), np.float32, 1e-3),
        ((64, 4, 1024), bfloat16, 1e-2),
        ((128, 2048), np.float32, 1e-3),
        ((200, 3, 600), bfloat16, 1e-2),
    ],
)
def test_cumsum(library, rng, shape, dtype, rtol, cores):
    inputs = {"x": rng.standard_normal(shape).astype(dtype)}
    reference = library.module("core.cumsum.cumsum_torch").cumsum_torch_ref
    library.check(
        "core/cumsum/cumsum",
        library.module("core.cumsum.cumsum").cumsum,
        Case(inputs, Tolerance(rtol, 1e-3), cores),
        reference(**widened(inputs)),
    )


# The library's test_rope.py: rtol 2**-7 (one unit of bfloat16), atol 1e-3.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("size", "contiguous", "in_sbuf"),
    [
        ((64, 1, 8, 16), True, False),
        ((128, 2, 2, 128), True, False),
        ((128, 8, 1, 16), False, True),
        ((64, 3, 2, 16), False, True),
        ((64, 3, 5, 50), False, False),
        ((128, 2, 1, 300), False, False),
    ],
)
def test_rope(library, rng, size, contiguous, in_sbuf, cores):
    d_head, batch, _, length = size
    angles = (d_head // 2, batch, length)
    inputs = {
        "x_in": rng.standard_normal(size).astype(bfloat16),
        "cos": rng.standard_normal(angles).astype(bfloat16),
        "sin": rng.standard_normal(angles).astype(bfloat16),
        "lnc_shard": True,
        "contiguous_layout": contiguous,
        "relayout_in_sbuf": in_sbuf,
    }
    reference = library.module("core.embeddings.rope_torch").rope_torch_ref
    library.check(
        "core/embeddings/rope",
        library.module("core.embeddings.rope").RoPE,
        Case(inputs, Tolerance(2**-7, 1e-3), cores),
        reference(**widened(inputs)),
    )


# The library's test_rope_hf.py: rtol = atol = 1e-6, with a reference that rounds to bfloat16 too.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("heads", "length", "dtype", "backward", "packed"),
    [
        ((1, 4, 2, 128), 256, bfloat16, False, False),
        ((2, 2, 1, 64), 256, np.float32, False, True),
        ((1, 4, 2, 128), 256, np.float32, True, False),
        ((2, 1, 1, 128), 512, bfloat16, True, True),
    ],
)
def test_rope_hf(library, rng, heads, length, dtype, backward, packed, cores):
    batch, query_heads, key_heads, d_head = heads
    query = rng.standard_normal((batch, query_heads, length, d_head)).astype(dtype)
    key = rng.standard_normal((batch, key_heads, length, d_head)).astype(dtype)
    inputs = {"q": query, "k": key, "q_out": np.zeros_like(query), "k_out": np.zeros_like(key)}
    inputs["backward"] = backward
    if packed:
        inputs["rope_cache"] = rng.standard_normal((length, 2 * d_head)).astype(dtype)
    else:
        inputs["cos"] = rng.standard_normal((batch, length, d_head)).astype(dtype)
        inputs["sin"] = rng.standard_normal((batch, length, d_head)).astype(dtype)
    reference = library.module("core.embeddings.rope_hf_torch").rope_hf_torch_ref
    library.check(
        "core/embeddings/rope_hf",
        library.module("core.embeddings.rope_hf").rope_hf,
        Case(inputs, Tolerance(1e-6, 1e-6), cores),
        reference(**widened(inputs, narrow)),
    )


# The library's test_dynamic_elementwise_add.py: exact, in its test of commutativity.
@pytest.mark.filterwarnings("ignore:nl.dynamic_range is deprecated:DeprecationWarning")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", [(128, 512), (384, 1024)])
def test_dynamic_elementwise_add(library, rng, shape, cores):
    first = rng.standard_normal(shape).astype(bfloat16)
    second = rng.standard_normal(shape).astype(bfloat16)
    tiles = np.array([[shape[0] // 128]], np.int32)
    reference = library.module("experimental.dynamic_shapes.dynamic_elementwise_add_torch")
    library.check(
        "experimental/dynamic_shapes/dynamic_elementwise_add",
        library.module("experimental.dynamic_shapes").dynamic_elementwise_add,
        Case({"input_a": first, "input_b": second, "num_m_tiles": tiles}, EXACT, cores),
        reference.dynamic_elementwise_add_torch_ref(narrow(first), narrow(second)),
    )
