"""Training steps under DistributedDataParallel, for processes of `ranks`."""

import torch

from trnconv.pytorch import nn

BATCH, STEPS, RATE = 2, 2, 0.25


def net(kinds):
    """Integers, so that every sum and the mean of two ranks are exact."""
    model = torch.nn.Sequential(
        kinds.Conv3d(2, 3, (1, 2, 2), stride=(1, 2, 1), bias=True), kinds.Conv3d(3, 1, 1)
    )
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    return model


def videos():
    """One for each rank."""
    generator = torch.Generator().manual_seed(4)
    return torch.randint(-2, 3, (BATCH, 2, 2, 4, 4), generator=generator).float()


def stepped(model, x):
    """Parameters after steps on the sum of all outputs."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def under_ddp(group, rank):
    """Parameters after steps on one video of two, gradients averaged over ranks."""
    model = torch.nn.parallel.DistributedDataParallel(net(nn), process_group=group)
    return stepped(model, videos()[rank : rank + 1])
