"""Kernels that look for values: maxima, non-zero entries, the experts of a token."""

import numpy as np
import pytest

from nki_library import EXACT, Case, Tolerance, bfloat16, widened
from nkisim.errors import NkiValidationError

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]


# The library's test_cascaded_max.py: rtol = atol = 1e-5 for values; its indices are equal here.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 1, 3168), np.float32),
        ((8, 5, 1058), np.float32),
        ((10, 1, 1600), np.float32),
        ((65, 1, 1000), np.float32),
        ((1, 127, 999), np.float32),
        ((32, 1, 256), bfloat16),
    ],
)
def test_cascaded_max(library, rng, shape, dtype, cores):
    # Distinct values in each row: which of two equal maxima is meant is nobody's promise.
    rows = [rng.permutation(shape[-1]) for _ in range(shape[0] * shape[1])]
    inputs = {"input_tensor": (np.stack(rows) - 100).reshape(shape).astype(dtype)}
    reference = library.module("core.max.cascaded_max_torch").cascaded_max_torch_ref
    library.check(
        "core/max/cascaded_max",
        library.module("core.max.cascaded_max").cascaded_max,
        Case(inputs, Tolerance(1e-5, 1e-5), cores),
        reference(**widened(inputs)),
    )


def sparse(rng, tokens, experts, per_token, dtype):
    flags = np.arange(tokens * experts) < tokens * per_token
    return rng.permutation(flags).reshape(tokens, experts).astype(dtype)


# The library's test_find_nonzero_indices.py: exact.
@pytest.mark.parametrize(
    ("cores", "tokens", "chunk", "columns", "dtype"),
    [
        (1, 512, 512, None, np.int32),
        (2, 512, 512, None, np.int32),
        (2, 1024, 512, None, np.float32),
        (1, 512, 512, (16, 16), np.float32),
        (2, 1024, 512, (120, 8), np.int32),
    ],
)
def test_find_nonzero_indices(library, rng, cores, tokens, chunk, columns, dtype):
    inputs = {"input_tensor": sparse(rng, tokens, 128, 8, dtype), "chunk_size": chunk}
    if columns:
        inputs["col_start_id"] = np.array(columns[:1], np.int32)
        inputs["n_cols"] = columns[1]
    module = library.module("core.subkernels.find_nonzero_indices_torch")
    library.check(
        "core/subkernels/find_nonzero_indices",
        library.module("core.subkernels.find_nonzero_indices").find_nonzero_indices,
        Case(inputs, EXACT, cores),
        module.find_nonzero_indices_torch_ref(**widened(inputs)),
    )


# The library's test_find_nonzero_indices_with_count.py: exact.
@pytest.mark.parametrize(("length", "count"), [(64, 0), (256, 40), (128, 128)])
def test_find_nonzero_indices_with_count(library, rng, length, count):
    x = np.zeros((1, length), np.float32)
    x[0, rng.permutation(length)[:count]] = rng.uniform(0.1, 1.0, count)
    expected = np.full((1, length + 1), -1, np.int32)
    expected[0, :count] = np.flatnonzero(x)
    expected[0, -1] = count
    module = library.module("experimental.benchmark.find_nonzero_indices_with_count")
    library.check(
        "experimental/benchmark/find_nonzero_indices_with_count",
        module.find_nonzero_indices_with_count,
        Case({"input_tensor": x}, EXACT, note="reference: numpy.flatnonzero"),
        expected,
    )


def topk_config(utilities, batch, length, kept, cores):
    """The configuration that the library's tests make before they launch."""
    plain = utilities.create_topk_config(
        inp_shape=(batch, 1, length),
        inp_dtype="float32",
        k=kept,
        sorted=True,
        num_programs=cores,
    )
    shape = (plain.BxS, plain.vocab_size)
    return utilities.create_rotational_topk_config(inp_shape=shape, topk_config=plain)


# The library's test_topk.py: rtol 1e-3 for values; both outputs are equal here.
@pytest.mark.parametrize(
    ("cores", "batch", "length", "kept"),
    [(1, 4, 512, 64), (2, 40, 4058, 256), (2, 1, 3168, 256), (2, 150, 1000, 50)],
)
def test_rotational_topk(library, rng, cores, batch, length, kept):
    pytest.importorskip("scipy", reason="rotational_topk_utils imports scipy")
    import torch

    module = library.module("core.topk.rotational_topk")
    utilities = library.module("core.topk.rotational_topk_utils")
    config = topk_config(utilities, batch, length, kept, cores)
    config = module.prepare_rotational_constants(config)
    # Distinct values: which of two equal ones is meant is nobody's promise.
    x = np.stack([rng.permutation(length) for _ in range(batch)]).astype(np.float32) - 100
    values, indices = torch.topk(torch.from_numpy(x), kept)
    library.check(
        "core/topk/rotational_topk",
        module.rotational_topk,
        Case(
            {"inp": x, "config": config},
            EXACT,
            cores,
            "reference: torch.topk",
            helpers=("core/topk/rotational_topk_utils",),
        ),
        (values, indices.to(torch.int32)),
    )


# The library's test_topk_reduce.py: rtol = atol = 5e-2.
@pytest.mark.parametrize(
    ("cores", "ranks", "tokens", "per_token", "hidden"), [(1, 8, 4, 4, 512), (2, 8, 4, 8, 1024)]
)
def test_topk_reduce(library, rng, cores, ranks, tokens, per_token, hidden):
    import torch

    rows = tokens * per_token
    numbers = np.arange(tokens, dtype=np.int32).repeat(per_token).reshape(-1, 1).view(bfloat16)
    known = np.concatenate([rng.standard_normal((rows, hidden)).astype(bfloat16), numbers], axis=1)
    scattered = np.full((ranks * tokens, hidden + 2), -1, bfloat16)
    scattered[rng.permutation(ranks * tokens)[:rows]] = known
    module = library.module("experimental.collectives.topk_reduce_torch")
    library.check(
        "experimental/collectives/topk_reduce",
        library.module("experimental.collectives.topk_reduce").topk_reduce,
        Case({"input": scattered, "T": tokens, "K": per_token}, Tolerance(5e-2, 5e-2), cores),
        module.topk_reduce_torch_ref(
            torch.from_numpy(scattered.view(np.int16)).view(torch.bfloat16), tokens, per_token
        ),
    )


# The library's test_indexed_flatten.py: exact, on two cores.
@pytest.mark.parametrize(
    ("width", "rows", "run", "known_rows", "first"),
    [
        (2048, 1, 128, 1, None),
        (2048, 17, 128, 17, None),
        (4096, 2, 256, 2, None),
        (2048, 2, 128, 4, 2),
    ],
)
def test_indexed_flatten(library, width, rows, run, known_rows, first):
    inputs = {
        "input_tensor": np.arange(rows * width, dtype=np.int32).reshape(rows, width),
        "f_len": run,
        "output_len": known_rows * width + 1024,
        "row_offsets": np.arange(known_rows, dtype=np.int32) * (width // run),
        "row_offsets_start": None if first is None else np.array([first], np.int32),
        "padding_val": -1,
    }
    module = library.module("core.subkernels.indexed_flatten_torch")
    library.check(
        "core/subkernels/indexed_flatten",
        library.module("core.subkernels.indexed_flatten").indexed_flatten,
        Case(inputs, EXACT, cores=2),
        module.indexed_flatten_torch_ref(**widened(inputs)),
    )


def router_kernel(library):
    """router_topk writes into its arguments; this returns them, as the library's own tests do."""
    module = library.module("core.router_topk.router_topk")

    def route(x, router_logits, expert_index, expert_affinities, in_sbuf, **options):
        if in_sbuf:
            layout = {"hbm_layout": module.XHBMLayout_T_H__1, "sb_layout": options["x_sb_layout"]}
            x = module.router_topk_input_x_load(x, **layout)
        outputs = (router_logits, expert_index, expert_affinities)
        module.router_topk(
            x=x,
            router_logits=router_logits,
            expert_index=expert_index,
            expert_affinities=expert_affinities,
            **options,
        )
        return outputs

    return route


def router_inputs(library, rng, sizes, activation, options):
    tokens, hidden, experts, chosen = sizes
    small = lambda *shape: rng.uniform(-0.1, 0.1, shape).astype(bfloat16)  # noqa: E731 (two words)
    options = dict(options)
    rows = options.get("in_sbuf") or options.get("x_hbm_layout")
    acts = library.module("core.utils.common_types").RouterActFnType
    return {
        "x": small(tokens, hidden) if rows else small(hidden, tokens),
        "w": small(hidden, experts),
        "w_bias": small(1, experts) if options.pop("bias", False) else None,
        "router_logits": np.zeros((tokens, experts), bfloat16),
        "expert_index": np.zeros((tokens, chosen), np.uint32),
        "expert_affinities": np.zeros((tokens, experts), bfloat16),
        "act_fn": acts[activation],
        "k": chosen,
        "x_hbm_layout": 0,
        "x_sb_layout": 0,
        "router_pre_norm": False,
        "in_sbuf": False,
    } | options


# The library's test_router_topk.py: rtol 2e-2, atol 1e-5, on two cores; indices are equal here.
@pytest.mark.parametrize(
    ("sizes", "activation", "options"),
    [
        ((4, 512, 128, 4), "SOFTMAX", {"bias": True}),
        (
            (4, 512, 128, 4),
            "SOFTMAX",
            {"bias": True, "use_PE_broadcast_w_bias": True, "x_hbm_layout": 1},
        ),
        ((4, 512, 256, 4), "SOFTMAX", {}),
        ((160, 256, 128, 4), "SOFTMAX", {"bias": True, "shard_on_tokens": True}),
        ((16, 512, 128, 4), "SOFTMAX", {"bias": True, "use_column_tiling": True}),
        ((8, 512, 128, 8), "SIGMOID", {"bias": True, "use_indirect_dma_scatter": True}),
        (
            (8, 512, 128, 8),
            "SOFTMAX",
            {
                "bias": True,
                "router_pre_norm": True,
                "norm_topk_prob": True,
                "use_indirect_dma_scatter": True,
                "in_sbuf": True,
                "x_sb_layout": 1,
            },
        ),
        ((8, 512, 128, 4), "SOFTMAX", {"router_pre_norm": True, "in_sbuf": True, "x_sb_layout": 2}),
        ((2, 512, 16, 1), "SOFTMAX", {"in_sbuf": True}),
    ],
)
def test_router_topk(library, rng, sizes, activation, options):
    inputs = router_inputs(library, rng, sizes, activation, options)
    reference = library.module("core.router_topk.router_topk_torch").router_topk_torch_ref
    arguments = widened(inputs)
    arguments["x_input_in_sbuf"] = arguments.pop("in_sbuf")
    library.check(
        "core/router_topk/router_topk",
        router_kernel(library),
        Case(inputs, Tolerance(2e-2, 1e-5), cores=2, note="router_topk in a kernel of the test"),
        reference(**arguments),
    )


def test_router_topk_meets_a_second_core_that_is_not_there(library, rng):
    """It calls core_barrier whatever the launch, and a barrier needs two cores."""
    inputs = router_inputs(library, rng, (4, 512, 128, 4), "SOFTMAX", {})
    with pytest.raises(NkiValidationError, match="core_barrier"):
        library.run(router_kernel(library), Case(inputs))
