"""Mixtures of experts, by blocks of tokens: forward kernels on bfloat16, and the backward one."""

import numpy as np
import pytest

from moe_blocks import blocks_of_tokens, post_scaled
from nki_library import Case, Tolerance, bfloat16, narrow, wide
from nki_library_stand_ins import BWMMFunc
from nkisim.errors import NkiValidationError

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

# The library's test_moe_cte.py, test_bwmm_shard_on_H.py and test_bwmm_bwd.py: rtol 2e-2, atol 1e-5.
TOLERANCE = Tolerance(2e-2, 1e-5)


def moe_inputs(rng, sizes, per_token=1):
    tokens, hidden, block, experts, inner = sizes
    ids, owners, affinities = blocks_of_tokens(rng, tokens, experts, block, per_token)
    normal = rng.standard_normal
    padded = np.concatenate([normal((tokens, hidden)), np.zeros((1, hidden))])
    up = normal((experts, hidden, 2, inner)) / np.sqrt(hidden)
    down = normal((experts, inner, hidden)) / np.sqrt(inner)
    return {
        "hidden_states": padded.astype(bfloat16),
        "expert_affinities_masked": affinities.reshape(-1, 1).astype(bfloat16),
        "gate_up_proj_weight": up.astype(bfloat16),
        "down_proj_weight": down.astype(bfloat16),
        "block_size": block,
        "token_position_to_id": ids,
        "block_to_expert": owners,
    }


def without_padding(outputs):
    """A kernel may leave the row of padding as it is."""
    return [outputs[0][:-1]]


def sum_of_cores(outputs):
    """Each core has a result of its own blocks, on the second axis."""
    return [outputs[0].astype(np.float32).sum(axis=1)[:-1]]


def moe_reference(library, inputs, kind):
    module = library.module("core.moe.moe_cte.moe_cte_torch")
    arguments = {name: narrow(value) for name, value in inputs.items()}
    options = post_scaled(library)
    return module.moe_cte_torch_ref(**arguments, bwmm_func=kind, **options)["output"][:-1]


SIZES = (512, 512, 256, 4, 256)


@pytest.mark.parametrize(
    ("module", "function", "kind", "convert", "racy"),
    [
        (
            "core.moe.moe_cte.bwmm_shard_on_I",
            "blockwise_mm_baseline_shard_intermediate",
            BWMMFunc.ANOTHER,
            without_padding,
            True,
        ),
        (
            "core.moe.moe_cte.bwmm_shard_on_block",
            "bwmm_shard_on_block",
            BWMMFunc.SHARD_ON_BLOCK,
            sum_of_cores,
            False,
        ),
        (
            "experimental.moe.forward.bwmm_shard_on_H",
            "blockwise_mm_baseline_shard_hidden",
            BWMMFunc.ANOTHER,
            without_padding,
            False,
        ),
    ],
)
@pytest.mark.parametrize("per_token", [1, 2])
def test_blocks_of_tokens(library, rng, module, function, kind, convert, racy, per_token):
    inputs = moe_inputs(rng, SIZES, per_token)
    case = Case(inputs | post_scaled(library), TOLERANCE, 2, convert_output=convert, racy=racy)
    expected = moe_reference(library, inputs, kind)
    kernel = getattr(library.module(module), function)
    library.check(module.replace(".", "/"), kernel, case, expected)


def test_moe_cte_chooses_a_kernel(library, rng):
    module = library.module("core.moe.moe_cte.moe_cte")
    inputs = moe_inputs(rng, SIZES)
    spec = module.MoECTESpec(implementation=module.MoECTEImplementation.shard_on_i)
    arguments = inputs | post_scaled(library) | {"spec": spec}
    case = Case(arguments, TOLERANCE, 2, convert_output=without_padding, racy=True)
    expected = moe_reference(library, inputs, BWMMFunc.ANOTHER)
    library.check("core/moe/moe_cte/moe_cte", module.moe_cte, case, expected)


def test_a_shard_of_a_block_wants_float32_affinities_where_nothing_accumulates(library, rng):
    """NKI documents that a tile operand of tensor_scalar is float32."""
    inputs = moe_inputs(rng, SIZES) | post_scaled(library)
    case = Case(inputs | {"is_tensor_update_accumulating": False}, cores=2)
    kernel = library.module("core.moe.moe_cte.bwmm_shard_on_block").bwmm_shard_on_block
    with pytest.raises(NkiValidationError, match="operand0 is bfloat16"):
        library.run(kernel, case)
    name = "core/moe/moe_cte/bwmm_shard_on_block (without accumulation)"
    library.note_refusal(name, case, "a bfloat16 tile as operand of tensor_scalar")


def differentiated(inputs):
    """(output, leaves, checkpoints of gate and up, of down) by torch's autograd."""
    import torch

    names = (
        *("hidden_states", "expert_affinities_masked"),
        *("gate_up_proj_weight", "down_proj_weight"),
    )
    leaves = [wide(inputs[name]).clone().requires_grad_() for name in names]
    hidden, affinity, up, down = leaves
    rows, experts = hidden.shape[0], up.shape[0]
    ids = wide(inputs["token_position_to_id"]).long().reshape(-1, inputs["block_size"])
    output, gates, downs = torch.zeros_like(hidden), [], []
    for block, expert in zip(ids, inputs["block_to_expert"].flatten().tolist(), strict=True):
        x = hidden[block]
        gate, linear = x @ up[expert, :, 0], x @ up[expert, :, 1]
        projected = (torch.nn.functional.silu(gate) * linear) @ down[expert]
        gates.append(torch.stack([gate.T, linear.T]).detach())
        downs.append(projected.detach())
        scale = affinity.reshape(rows, experts)[block, expert][:, None]
        output = output.index_add(0, block, projected * scale)
    return output, leaves, torch.stack(gates), torch.stack(downs)


def test_blockwise_backward(library, rng):
    """Gradients of hidden states and weights; that of affinities depends on which core is faster.

    Each core clears its half of that gradient and then scatters into all of it, with no barrier in
    between: nkisim reports the race, and its own order loses some of core 0's rows.
    """
    inputs = moe_inputs(rng, SIZES)
    output, leaves, gates, downs = differentiated(inputs)
    upstream = rng.uniform(-1, 1, output.shape).astype(bfloat16)
    upstream[-1] = 0
    output.backward(wide(upstream))
    arguments = inputs | {
        "gate_up_proj_act_checkpoint_T": gates.numpy().astype(bfloat16),
        "down_proj_act_checkpoint": downs.numpy().astype(bfloat16),
        "output_hidden_states_grad": upstream,
        "is_tensor_update_accumulating": False,
    }
    expected = [leaves[0].grad[:-1], leaves[2].grad, leaves[3].grad]
    case = Case(
        arguments,
        TOLERANCE,
        2,
        "reference: torch's autograd; not the gradient of affinities, which races",
        convert_output=lambda outputs: [outputs[0][:-1], *outputs[2:]],
        racy=True,
    )
    kernel = library.module("experimental.moe.bwd.blockwise_mm_backward").blockwise_mm_bwd
    library.check("experimental/moe/bwd/blockwise_mm_backward", kernel, case, tuple(expected))
