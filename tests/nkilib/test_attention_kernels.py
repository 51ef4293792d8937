"""Attention: whole sequences forward and backward, token generation, and the masks for it."""

import numpy as np
import pytest

from nki_library import EXACT, Case, Tolerance, bfloat16, wide, widened

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

# The library's test_attention_cte.py and test_attention_bwd.py: rtol 2e-2, atol 1e-5.
TOLERANCE = Tolerance(2e-2, 1e-5)


def attention_inputs(rng, sizes, options):
    """Uniform in [0, 1) like the library's; `prior`, `sinks` and `packed` add their tensors."""
    batch, batch_kv, queries, keys, d_head = sizes
    options = dict(options)
    dtype = options.pop("dtype", bfloat16)
    prior, sinks, packed = (options.pop(name, None) for name in ("prior", "sinks", "packed"))
    uniform = lambda *shape: rng.random(shape).astype(dtype)  # noqa: E731 (two words)
    along_rows = options.setdefault("tp_q", True)
    transposed_keys = options.setdefault("tp_k", False)
    key_shape = lambda length: (  # noqa: E731 (one expression)
        (batch_kv, length, d_head) if transposed_keys else (batch_kv, d_head, length)
    )
    inputs = {
        "q": uniform(batch, queries, d_head) if along_rows else uniform(batch, d_head, queries),
        "k": uniform(*key_shape(keys)),
        "v": uniform(batch_kv, keys, d_head),
        "sliding_window": 0,
    }
    if prior:
        inputs["k_prior"] = uniform(*key_shape(prior))
        inputs["v_prior"] = uniform(batch_kv, prior, d_head)
        inputs["prior_used_len"] = np.array([prior // 3], np.int32)
    if sinks:
        inputs["sink"] = rng.uniform(15.0, 25.0, (batch, 1)).astype(np.float32)
    if packed:
        second = np.arange(queries)[:, None] >= packed
        inputs["bound_min"] = np.where(second, packed, 0).astype(np.float32)
        inputs["bound_max"] = np.where(second, queries, packed).astype(np.float32)
    return inputs | options


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 1, 128, 128, 64), {}),
        ((2, 1, 256, 512, 128), {"causal_mask": False, "tp_k": True}),
        ((2, 2, 320, 320, 64), {"tp_q": False, "tp_out": True, "scale": 0.125}),
        ((1, 1, 256, 256, 128), {"sinks": True, "dtype": np.float32}),
        ((2, 2, 384, 384, 64), {"sliding_window": 128}),
        ((1, 1, 128, 256, 64), {"prior": 512}),
        ((2, 2, 256, 256, 64), {"cache_softmax": True}),
        ((2, 2, 256, 256, 64), {"packed": 85}),
    ],
)
def test_attention_cte(library, rng, sizes, options, cores):
    inputs = attention_inputs(rng, sizes, options)
    reference = library.module("core.attention.attention_cte_torch").attention_cte_torch_ref
    library.check(
        "core/attention/attention_cte",
        library.module("core.attention.attention_cte").attention_cte,
        Case(inputs, TOLERANCE, cores),
        reference(**widened(inputs, lambda v: v.tolist() if is_bound(v, inputs) else wide(v))),
    )


def is_bound(value, inputs):
    """The reference builds its own tensors of these two."""
    return value is not None and (
        value is inputs.get("bound_min") or value is inputs.get("bound_max")
    )


# Sinks in float32 only: their gradient is a sum of about `length` terms that nearly cancel, and the
# few values of it have no large one to measure bfloat16's rounding against.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("heads", "length", "dtype", "causal", "window", "sinks"),
    [
        ((1, 1, 1, 64), 512, bfloat16, True, None, 0),
        ((1, 2, 1, 128), 512, bfloat16, False, None, 0),
        ((1, 2, 2, 64), 512, bfloat16, True, 128, 0),
        ((1, 2, 2, 64), 512, np.float32, True, None, 2),
    ],
)
def test_attention_bwd(library, rng, heads, length, dtype, causal, window, sinks, cores):
    batch, query_heads, key_heads, d_head = heads
    module = library.module("core.attention.attention_bwd_torch")
    of_heads = lambda n: rng.standard_normal((batch, n, d_head, length)).astype(dtype)  # noqa: E731
    inputs = {"q_ref": of_heads(query_heads), "k_ref": of_heads(key_heads)}
    inputs["v_ref"] = of_heads(key_heads)
    sink = rng.standard_normal((1, query_heads, sinks)).astype(dtype).repeat(batch, 0)
    inputs["sinks_ref"] = sink if sinks else None
    query, key, value, sink = (wide(tensor) for tensor in inputs.values())
    forward = {"sliding_window": window, "sinks": sink}
    output, lse, _ = module.compute_o_lse(query, key, value, causal, True, **forward)
    inputs["o_ref"] = output.numpy().astype(dtype)
    inputs["lse_ref"] = lse.numpy()
    inputs["dy_ref"] = of_heads(query_heads)
    inputs |= {"use_causal_mask": causal, "mixed_precision": True, "sliding_window": window}
    library.check(
        "core/attention/attention_bwd",
        library.module("core.attention.attention_bwd").attention_bwd,
        Case(inputs, TOLERANCE, cores),
        module.attention_bwd_torch_ref(**widened(inputs)),
    )


# The library's test_gen_mask_tkg.py: exact.
@pytest.mark.parametrize(
    ("cores", "sizes", "block", "window", "active"),
    [
        (1, (4, 1, 256, 1), 0, None, False),
        (1, (4, 1, 1024, 5), 0, None, True),
        (2, (4, 1, 1024, 5), 0, None, False),
        (2, (8, 8, 1024, 5), 0, None, True),
        (1, (4, 2, 2048, 5), 16, None, False),
        (2, (4, 2, 2048, 5), 16, None, True),
        (1, (4, 1, 512, 5), 0, 60, True),
    ],
)
def test_gen_mask_tkg(library, rng, cores, sizes, block, window, active):
    batch, heads, prior, new = sizes
    position = rng.integers(new, prior - new, batch).repeat(new)[None].astype(np.float32)
    inputs = {"pos_ids_hbm": position, "block_len": block}
    inputs |= {"bs": batch, "q_head": heads, "s_active": new, "s_prior": prior}
    if window:
        inputs["start_pos_hbm"] = np.maximum(position - window, 0).astype(np.float32)
    if active:
        inputs["active_mask"] = causal_among_new(batch, heads, new).astype(np.float32)
    module = library.module("core.attention.gen_mask_tkg_torch")
    library.check(
        "core/attention/gen_mask_tkg",
        library.module("core.attention.gen_mask_tkg").gen_mask_tkg_hbm,
        Case(inputs, EXACT, cores),
        module.gen_mask_tkg_hbm_torch_ref[cores](**widened(inputs)),
    )


def causal_among_new(batch, heads, new):
    """[key, batch, head, query]: a new token sees itself and the new ones before it."""
    sees = np.tril(np.ones((new, new))).T[:, None, None, :]
    return np.broadcast_to(sees, (new, batch, heads, new)).copy()


def token_attention_kernel(library):
    """attention_tkg works in a given SBUF region; this gives it one, as the library's tests do."""
    import nki.language as nl

    kernel = library.module("core.attention.attention_tkg").attention_tkg
    allocator = library.module("core.utils.allocator")
    logger = library.module("core.utils.logging").Logger

    def attend(q, k_active, v_active, k_prior, v_prior, mask, inv_freqs, rope_pos_ids, cfg):
        room = nl.tile_size.total_available_sbuf_size - 16 * 1024
        memory = allocator.SbufManager(0, room, logger("attend"))
        memory.open_scope()
        shape = (cfg.bs, cfg.q_head, cfg.d_head, cfg.s_active)
        out = nl.ndarray(shape, dtype=q.dtype, buffer=nl.shared_hbm)
        keys = nl.ndarray((cfg.bs, 1, *shape[2:]), dtype=q.dtype, buffer=nl.shared_hbm)
        tensors = (q, k_active, v_active, k_prior, v_prior, mask, out, cfg, memory)
        results = kernel(*tensors, inv_freqs, rope_pos_ids, k_out=keys)
        memory.close_scope()
        return results

    return attend


# The library's test_attention_tkg.py: rtol 1e-2, atol 1e-5.
@pytest.mark.parametrize(
    ("cores", "sizes", "transposed_keys"),
    [
        (1, (4, 2, 7, 256, 512, 64), True),
        (2, (4, 1, 5, 1024, 1024, 128), True),
        (2, (4, 2, 7, 512, 1024, 64), False),
    ],
)
def test_attention_tkg(library, rng, cores, sizes, transposed_keys):
    import torch

    batch, heads, new, prior, room, d_head = sizes
    options = {"tp_k_prior": transposed_keys, "use_pos_id": True, "fuse_rope": True}
    config = library.module("core.attention.attention_tkg").AttnTKGConfig(*sizes, 0, **options)
    uniform = lambda *shape: rng.random(shape).astype(bfloat16)  # noqa: E731 (two words)
    position = (np.arange(batch) * 3 + prior // 4 * 3) % (prior - new)
    keys = (batch, 1, room, d_head) if transposed_keys else (batch, 1, d_head, room)
    inputs = {
        "q": uniform(batch, heads, new, d_head),
        "k_active": uniform(batch, 1, new, d_head),
        "v_active": uniform(batch, 1, new, d_head),
        "k_prior": uniform(*keys),
        "v_prior": uniform(batch, 1, room, d_head),
        "mask": causal_among_new(batch, heads, new).astype(np.uint8),
        "inv_freqs": rng.random((d_head // 2, 1)).astype(np.float32),
        "rope_pos_ids": position[:, None].repeat(new, 1).astype(np.float32),
        "cfg": config,
    }
    reference = library.module("core.attention.attention_tkg_torch").attention_tkg_torch_ref[cores]
    out = torch.zeros(batch, heads, d_head, new)
    k_out = torch.zeros(batch, 1, d_head, new)
    library.check(
        "core/attention/attention_tkg",
        token_attention_kernel(library),
        Case(inputs, Tolerance(1e-2, 1e-5), cores, "attention_tkg in a kernel of the test"),
        reference(**widened(inputs), out=out, k_out=k_out, sbm=None),
    )
