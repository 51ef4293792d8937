"""Tokens sorted into blocks of one expert each, as blockwise kernels of nki-library take them."""

import numpy as np


def blocks_of_tokens(rng, tokens, experts, block, per_token):
    """(token ids in blocks, the expert of a block, affinities): each block has one expert's tokens.

    Places without a token have the id `tokens`, a row of padding. The number of blocks is even.
    """
    chosen = np.stack([rng.permutation(experts)[:per_token] for _ in range(tokens)])
    ids, owners = [], []
    for expert in range(experts):
        mine = np.flatnonzero((chosen == expert).any(axis=1))
        for start in range(0, len(mine), block):
            part = mine[start : start + block]
            ids.append(np.append(part, np.full(block - len(part), tokens)))
            owners.append(expert)
    if len(ids) % 2:
        ids.append(np.full(block, tokens))
        owners.append(experts - 1)
    affinities = np.zeros((tokens + 1, experts), np.float32)
    for token in range(tokens):
        affinities[token, chosen[token]] = rng.random(per_token)
    return np.concatenate(ids).astype(np.int32), np.array(owners, np.int32)[:, None], affinities


def post_scaled(library):
    """The option that weighs an expert's output by its affinity."""
    modes = library.module("core.utils.common_types").ExpertAffinityScaleMode
    return {"expert_affinities_scaling_mode": modes.POST_SCALE}
