"""What a training step keeps and what it computes again: a policy for torch's checkpoints.

    contexts = partial(create_selective_checkpoint_contexts, keep_convolutions)
    y = checkpoint(block, x, use_reentrant=False, context_fn=contexts)

Inside of the block the outputs of convolutions are kept, which are the inputs of norms and sums.
Norms, activations, padding and copies are computed again in the backward pass: they read and write
memory once, where a convolution also multiplies. A convolution's output costs as many bytes as
theirs, and takes several times as long to make.
"""

from __future__ import annotations

from typing import Any

from torch.utils.checkpoint import CheckpointPolicy

_KEPT = (
    "trnconv::convolution",
    "trnconv::input_gradient",  # the transposed convolution
    "aten::convolution",
    "aten::_scaled_dot_product",
    "aten::bmm",
)


def keep_convolutions(
    context: object, operator: Any, *args: Any, **kwargs: Any
) -> CheckpointPolicy:
    """Keep what the Tensor engine made; compute everything else again."""
    del context, args, kwargs
    name = operator.name() if hasattr(operator, "name") else ""
    if name.startswith(_KEPT):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE
