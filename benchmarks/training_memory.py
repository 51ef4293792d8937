"""`python -m benchmarks training --parts memory`: what autograd holds of Wan 2.1's encoder.

diffusers' own code runs in bf16 on torch's meta device, which has sizes and no data, and every
tensor that autograd keeps for the backward pass is counted once. Convolutions of trnconv keep what
torch's keep: their padded input. With checkpointing by blocks, the inputs of the blocks stay, and
what the largest of their calls keeps is there while it is recomputed; what lies outside of blocks
is not counted then. `ChannelRMSNorm` in place of the model's norms keeps nothing but its input.
Needs diffusers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.family import Finding
from benchmarks.training_step import fuse_norms
from nkisim.machine import TRN2, Reading

SIZE = (17, 256, 256)
BATCHES = (1, 8)
_BLOCKS = ("WanResidualBlock", "WanAttentionBlock", "WanResample")
_GIB = 2.0**30


class Kept:
    """Storages by their address, each counted once; those of weights are not."""

    def __init__(self, weights: set[int]) -> None:
        self._weights = weights
        self._storages: dict[int, Any] = {}  # held, so that no address comes twice

    def add(self, tensor: Any) -> Any:
        """As a hook of autograd takes it."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._weights:  # noqa: SLF001 (its only name)
            self._storages[storage._cdata] = storage  # noqa: SLF001
        return tensor

    @property
    def gib(self) -> float:
        """All of them."""
        return sum(storage.nbytes() for storage in self._storages.values()) / _GIB


def memory(reading: Reading) -> Iterator[Finding]:
    """Of one forward pass that is to be differentiated; no times, so no reading matters."""
    del reading
    import torch  # noqa: PLC0415 (for this part only)
    from diffusers import AutoencoderKLWan  # noqa: PLC0415

    with torch.device("meta"):
        vae = AutoencoderKLWan().bfloat16()
    weights = {weight.untyped_storage()._cdata for weight in vae.parameters()}  # noqa: SLF001
    blocks = [block for block in vae.encoder.modules() if type(block).__name__ in _BLOCKS]
    inside: list[Kept] = []
    of_blocks, largest = Kept(weights), 0.0

    def enter(_: Any, inputs: tuple[Any, ...]) -> None:
        of_blocks.add(inputs[0])
        inside.append(Kept(weights))

    def leave(*_: Any) -> None:
        nonlocal largest
        largest = max(largest, inside.pop().gib)

    def pack(tensor: Any) -> Any:
        for kept in (whole, *inside):
            kept.add(tensor)
        return tensor

    for block in blocks:
        block.register_forward_pre_hook(enter)
        block.register_forward_hook(leave)
    for fused in (False, True):
        if fused:
            with torch.device("meta"):
                fuse_norms(vae.encoder)
        for batch in BATCHES:
            whole, of_blocks, largest = Kept(weights), Kept(weights), 0.0
            x = torch.empty(batch, 3, *SIZE, device="meta", dtype=torch.bfloat16)
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                vae.encode(x)
            yield _finding(batch, ", ChannelRMSNorm" if fused else "", whole.gib)
            if not fused:
                yield _finding(batch, ", checkpointed by blocks", of_blocks.gib + largest)


def _finding(batch: int, name: str, gib: float) -> Finding:
    return Finding(
        name=f"Wan 2.1's encoder, {batch} x {'x'.join(map(str, SIZE))}{name}: kept",
        machine=TRN2.name,
        figure=gib,
        unit="GiB",
        remark=f"{TRN2.hbm_bytes / _GIB:.0f} GiB of HBM a launch",
    )
