"""The training guide's video autoencoder, and its loss curves in one process and under FSDP2."""

import torch
from torch.nn.functional import interpolate, mse_loss, pad, silu

RANKS, STEPS, RATE = 2, 3, 0.01


class CausalVae(torch.nn.Module):
    """Convolutions that look back in time, a stride of 2, nearest upsampling."""

    def __init__(self, kinds, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.rise = kinds.Conv3d(3, 8, 3)
        self.down = kinds.Conv3d(8, 4, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.up = kinds.Conv3d(4, 3, 3)

    def forward(self, x):
        latent = self.down(silu(self.rise(_causal(x))))
        return self.up(_causal(interpolate(latent, scale_factor=(1, 2, 2))))


def _causal(x):
    return pad(x, (1, 1, 1, 1, 2, 0))


def moving_squares():
    """A video for each rank: a bright square that moves to the right, and one that moves down."""
    videos = torch.zeros(RANKS, 3, 3, 8, 8)
    for frame in range(3):
        videos[0, :, frame, 2:5, frame + 1 : frame + 4] = 1
        videos[1, :, frame, frame + 1 : frame + 4, 2:5] = 1
    return videos.bfloat16()


def loss_of(model, videos):
    return mse_loss(model(videos).float(), videos.float())


def curve_of_one_process(kinds, seed):
    """Losses of bf16 steps on both videos; the optimizer's weights are float32."""
    model, videos = CausalVae(kinds, seed), moving_squares()
    master = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=RATE)
    model.bfloat16()
    losses = []
    for _ in range(STEPS):
        loss = loss_of(model, videos)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for weight, gradient in zip(master, gradients, strict=True):
            weight.grad = gradient.float()
        optimizer.step()
        with torch.no_grad():
            for parameter, weight in zip(model.parameters(), master, strict=True):
                parameter.copy_(weight)
        losses.append(loss.item())
    return losses


def curve_under_fsdp(group, rank, seed):
    """The same on one video of two, weights in shards of float32 that are gathered in bf16."""
    from torch.distributed.device_mesh import init_device_mesh  # slow to load, and seldom needed
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from trnconv.pytorch import nn

    del group
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model, video = CausalVae(nn, seed), moving_squares()[rank : rank + 1]
    for module in (model.rise, model.down, model.up, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, video)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    kinds = {type(parameter).__name__ for parameter in model.parameters()}
    return losses, kinds
