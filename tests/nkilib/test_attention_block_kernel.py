"""One layer's attention for new tokens: norm, projections, rotation, attention, cache, output."""

import numpy as np
import pytest

from nki_library import Case, Tolerance, bfloat16, narrow, wide

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

# The library's test_attention_block_tkg.py: rtol 2e-2, atol 1e-5.
TOLERANCE = Tolerance(2e-2, 1e-5)
EPSILON = 1e-3
# What the reference calls the norms of queries and keys before they are rotated.
OTHER_NAMES = {
    "rmsnorm_QK_pre_rope_enabled": "rmsnorm_QK_enabled",
    "rmsnorm_QK_pre_rope_eps": "rmsnorm_QK_eps",
    "rmsnorm_QK_pre_rope_W_Q": "W_rmsnorm_Q_pre_rope",
    "rmsnorm_QK_pre_rope_W_K": "W_rmsnorm_K_pre_rope",
    "rmsnorm_QK_post_rope_W_Q": "W_rmsnorm_Q_post_rope",
    "rmsnorm_QK_post_rope_W_K": "W_rmsnorm_K_post_rope",
}


def constants(library):
    """What all cases have: no quantisation, no norms of queries and keys, results in HBM."""
    none = library.module("core.utils.common_types").QuantizationType.NONE
    absent = (
        *("weight_dequant_scale_qkv", "input_dequant_scale_qkv", "active_blocks_table", "sink"),
        *("weight_dequant_scale_out", "input_dequant_scale_out"),
        *("rmsnorm_QK_pre_rope_W_Q", "rmsnorm_QK_pre_rope_W_K"),
        *("rmsnorm_QK_post_rope_W_Q", "rmsnorm_QK_post_rope_W_K"),
    )
    return dict.fromkeys(absent) | {
        "quantization_type_qkv": none,
        "quantization_type_out": none,
        "rmsnorm_QK_pre_rope_enabled": False,
        "rmsnorm_QK_pre_rope_eps": EPSILON,
        "rmsnorm_QK_post_rope_enabled": False,
        "rmsnorm_QK_post_rope_eps": EPSILON,
        "rope_contiguous_layout": True,
        "transposed_out": False,
        "out_in_sb": False,
    }


def attention_mask(library, positions, sizes, cores):
    import torch

    batch, heads, _, _, context, new = sizes
    build = library.module("core.attention.gen_mask_tkg_torch").build_full_attention_mask
    mask = build(
        cache_lens=torch.from_numpy(positions.flatten()).float(),
        batch=batch,
        num_heads=heads,
        s_active=new,
        s_ctx=context,
        lnc=cores,
        include_active_mask=True,
        transposed=True,
    )
    return np.ascontiguousarray(mask.numpy()).astype(np.uint8)


def block_inputs(library, rng, sizes, cores, *, norm, transposed_keys):
    batch, heads, d_head, hidden, context, new = sizes
    uniform = lambda *shape: rng.uniform(-1, 1, shape).astype(bfloat16)  # noqa: E731 (two words)
    columns = (heads + 2) * d_head
    positions = ((np.arange(batch) * 3 + context // 4 * 3) % (context - new))[:, None]
    keys = (batch, 1, d_head, context) if transposed_keys else (batch, 1, context, d_head)
    return constants(library) | {
        "X": uniform(batch, new, hidden),
        "X_hidden_dim_actual": hidden,
        "rmsnorm_X_enabled": norm,
        "rmsnorm_X_eps": EPSILON,
        "rmsnorm_X_gamma": rng.uniform(0.5, 1.5, (1, hidden)).astype(bfloat16) if norm else None,
        "W_qkv": rng.normal(0, hidden**-0.5, (hidden, columns)).astype(bfloat16),
        "bias_qkv": uniform(1, columns),
        "cos": uniform(d_head // 2, batch, new),
        "sin": uniform(d_head // 2, batch, new),
        "K_cache_transposed": transposed_keys,
        "K_cache": uniform(*keys),
        "V_cache": uniform(batch, 1, context, d_head),
        "attention_mask": attention_mask(library, positions, sizes, cores),
        "update_cache": True,
        "kv_cache_update_idx": positions.astype(np.uint32),
        "W_out": rng.normal(0, 0.5, (heads * d_head, hidden)).astype(bfloat16),
        "bias_out": uniform(1, hidden),
    }


def block_reference(library, inputs, cores):
    module = library.module("experimental.transformer.attention_block_tkg_torch")
    arguments = {OTHER_NAMES.get(name, name): narrow(value) for name, value in inputs.items()}
    arguments["kv_cache_update_idx"] = wide(inputs["kv_cache_update_idx"])
    unused = dict.fromkeys(("softmax_scale", "k_scale", "v_scale"))
    return module.AttentionBlockTkgTorchRef(cores)(**arguments, **unused, skip_attention=False)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("norm", "transposed_keys"), [(False, False), (True, False), (False, True)]
)
def test_attention_block(library, rng, numbered_enum, norm, transposed_keys, cores):
    numbered_enum(library)
    sizes = (4, 2, 64, 1024, 256, 4)
    options = {"norm": norm, "transposed_keys": transposed_keys}
    inputs = block_inputs(library, rng, sizes, cores, **options)
    note = "one constant (_DGE_MODE_NONE = 3) replaced by nisa.dge_mode.none" if norm else ""
    library.check(
        "experimental/transformer/attention_block_tkg",
        library.module("experimental.transformer.attention_block_tkg").attention_block_tkg,
        Case(inputs, TOLERANCE, cores, note, racy=cores == 2),
        block_reference(library, inputs, cores),
    )
