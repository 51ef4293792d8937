"""Mixtures of experts and loads in microscaled types, on trn3."""

import numpy as np
import pytest

from moe_blocks import blocks_of_tokens, post_scaled
from nki_library import EXACT, Case, Tolerance, bfloat16, wide
from nki_library_stand_ins import FP4_WORDS, quantize_to_mx

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

TILE = 512  # of the contraction: 128 partitions of four values
NEWER_SCALES = "its reference with the scales quantize_mx has since NKI 0.5"
# The library's test_moe_bwmm_mx_cte.py: rtol 5e-2, atol 1e-5. Its test_moe_tkg.py has 2e-2, on data
# chosen to be stable; on random data an intermediate next to a power of two has another scale than
# the reference's, which does not round it to bfloat16 as the kernel does.
TOLERANCE = Tolerance(5e-2, 1e-5)


@pytest.fixture
def library(trn3_library, monkeypatch):
    for name in ("core.mlp.mlp_tkg.mlp_proj_mxfp4_torch", "core.moe.moe_tkg.moe_tkg_torch"):
        monkeypatch.setattr(trn3_library.module(name), "quantize_to_mx", quantize_to_mx)
    return trn3_library


def fp4_weights(rng, experts, hidden, inner):
    """Random words of four fp4, and scales near 2^-5: (gate and up, their scales, down, its)."""
    words = lambda *shape: rng.integers(0, 2**16, shape).astype(np.uint16)  # noqa: E731 (two words)
    scales = lambda *shape: rng.integers(120, 124, shape).astype(np.uint8)  # noqa: E731
    tiles, inner_tiles = hidden // TILE, -(-inner // TILE)
    return (
        words(experts, 128, 2, tiles, inner),
        scales(experts, 16, 2, tiles, inner),
        words(experts, 128, inner_tiles, hidden),
        scales(experts, 16, inner_tiles, hidden),
    )


def expert_reference(library, hidden, weights, affinities, **options):
    """What every expert makes of every token, weighted; the kernels compute the tokens it has."""
    gate_up, gate_up_scale, down, down_scale = weights
    module = library.module("core.moe.moe_tkg.moe_tkg_torch")
    return module.moe_tkg_torch_ref(
        hidden_input=hidden.astype(np.float32),
        expert_gate_up_weights=gate_up.view(FP4_WORDS),
        expert_down_weights=down.view(FP4_WORDS),
        expert_affinities=affinities,
        expert_index=None,
        is_all_expert=True,
        expert_gate_up_weights_scale=wide(gate_up_scale),
        expert_down_weights_scale=wide(down_scale),
        **post_scaled(library),
        **options,
    )["out"]


def token_kernel(library):
    """moe_tkg with weights as the library's own view of packed words."""
    import nki.language as nl

    kernel = library.module("core.moe.moe_tkg.moe_tkg").moe_tkg
    view = library.module("core.utils.tensor_view").TensorView

    def launch(hidden_input, expert_gate_up_weights, expert_down_weights, **others):
        packed = [
            view(words).reinterpret_cast(nl.float4_e2m1fn_x4)
            for words in (expert_gate_up_weights, expert_down_weights)
        ]
        return kernel(hidden_input, *packed, **others)

    return launch


@pytest.mark.parametrize(
    ("tokens", "hidden", "inner", "experts", "per_token"),
    [(32, 512, 512, 1, 1), (32, 1024, 512, 2, 2), (32, 512, 1024, 1, 1)],
)
def test_all_experts_of_a_token(library, rng, tokens, hidden, inner, experts, per_token):
    """moe_tkg is no kernel by itself; three decorated files do its work."""
    weights = fp4_weights(rng, experts, hidden, inner)
    _, _, affinities = blocks_of_tokens(rng, tokens, experts, tokens, per_token)
    x = rng.standard_normal((tokens, hidden)).astype(bfloat16)
    inputs = {
        "hidden_input": x,
        "expert_gate_up_weights": weights[0],
        "expert_down_weights": weights[2],
        "expert_affinities": affinities[:-1],
        "expert_index": np.zeros((tokens, per_token), np.int32),
        "is_all_expert": True,
        "rank_id": np.zeros((1, 1), np.int32),
        "expert_gate_up_weights_scale": weights[1],
        "expert_down_weights_scale": weights[3],
    }
    case = Case(inputs | post_scaled(library), TOLERANCE, 2, NEWER_SCALES)
    expected = expert_reference(library, x, weights, affinities[:-1])
    library.check("core/moe/moe_tkg/moe_tkg (fp4)", token_kernel(library), case, expected)


LIMITS = {
    "gate_clamp_upper_limit": 7.0,
    "gate_clamp_lower_limit": -7.0,
    "up_clamp_upper_limit": 7.0,
    "up_clamp_lower_limit": -7.0,
}


@pytest.mark.parametrize(
    ("module", "function", "inner", "options", "convert", "racy"),
    [
        (
            "core.moe.moe_cte.bwmm_shard_on_I_mx",
            "blockwise_mm_shard_intermediate_mx",
            1024,
            {},
            lambda outputs: [outputs[0][:-1]],
            True,
        ),
        (
            "core.moe.moe_cte.bwmm_shard_on_block_mx",
            "bwmm_shard_on_block_mx",
            512,
            LIMITS,  # without them it calls tensor_scalar with op0=None
            lambda outputs: [outputs[0].astype(np.float32).sum(axis=0)[:-1]],
            False,
        ),
    ],
)
def test_blocks_of_tokens(library, rng, module, function, inner, options, convert, racy):
    tokens, hidden, block, experts = 512, 512, 256, 2
    weights = fp4_weights(rng, experts, hidden, inner)
    ids, owners, affinities = blocks_of_tokens(rng, tokens, experts, block, 1)
    x = np.concatenate([rng.standard_normal((tokens, hidden)), np.zeros((1, hidden))])
    bias = rng.normal(0, 0.1, (experts, 128, 2, -(-inner // TILE), 4)).astype(bfloat16)
    down_bias = rng.normal(0, 0.1, (experts, hidden)).astype(bfloat16)
    inputs = {
        "hidden_states": x.astype(bfloat16),
        "expert_affinities_masked": affinities.reshape(-1, 1).astype(bfloat16),
        "gate_up_proj_weight": weights[0],
        "gate_up_proj_scale": weights[1],
        "down_proj_weight": weights[2],
        "down_proj_scale": weights[3],
        "gate_and_up_proj_bias": bias,
        "down_proj_bias": down_bias,
        "block_size": block,
        "token_position_to_id": ids,
        "block_to_expert": owners,
    }
    if function == "bwmm_shard_on_block_mx":
        inputs["n_static_blocks"] = len(owners) - 2
        inputs["conditions"] = np.append(np.ones(len(owners)), [0, 0]).astype(np.int32)
    arguments = inputs | options | post_scaled(library)
    expected = expert_reference(
        library,
        inputs["hidden_states"],
        weights,
        inputs["expert_affinities_masked"].astype(np.float32).reshape(-1, experts),
        expert_gate_up_bias=wide(bias),
        expert_down_bias=wide(down_bias),
        **options,
    )[:-1]
    case = Case(arguments, TOLERANCE, 2, NEWER_SCALES, convert, racy)
    kernel = getattr(library.module(module), function)
    library.check(module.replace(".", "/"), kernel, case, expected)


@pytest.mark.parametrize("columns", [1024, 1536])
def test_a_load_that_quantises(library, rng, columns, monkeypatch):
    """[M, K] in blocks of 512 columns, four of them side by side, scales in rows 0-3, 32-35 ..."""
    import nki.language as nl

    monkeypatch.setattr(nl, "range", range, raising=False)  # NKI 0.6 does not list nl.range
    x = rng.standard_normal((128, columns)).astype(bfloat16)
    data, scales = [], np.zeros((128, 128 * columns // TILE), np.uint8)
    for block in range(columns // TILE):
        part = x[:, block * TILE :][:, :TILE].astype(np.float32)
        swizzled = part.reshape(128, 128, 4).transpose(1, 0, 2).reshape(128, -1)
        words, codes = quantize_to_mx(swizzled, "float8_e4m3fn_x4")
        data.append(words)
        for group in range(4):
            rows = codes[4 * group : 4 * group + 4]
            scales[32 * group : 32 * group + 4, 128 * block : 128 * (block + 1)] = rows
    used = np.isin(np.arange(128) % 32, range(4))
    module = library.module("experimental.mxfp_subkernels.mxfp_load_utils")
    library.check(
        "experimental/mxfp_subkernels/mxfp_load_utils",
        module.mxfp_load_performance_wrapper,
        Case({"tensor": x}, EXACT, 1, "nl.range taken for range", lambda o: [o[0], o[1][used]]),
        (np.concatenate(data, axis=1), scales[used]),
    )
