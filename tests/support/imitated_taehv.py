"""The structure of TAEHV in code of our own: images, with the frame before as more channels."""

import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)
from torch import nn


class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.act = nn.ReLU(inplace=True)

    def forward(self, x, past):
        return self.act(self.conv(torch.cat([x, past], 1)) + x)


class DepthwiseMemory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 7, padding=3, groups=2 * width, bias=False),
            nn.Conv2d(2 * width, 4 * width, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * width, width, 1, bias=False),
        )

    def forward(self, x, past):
        return self.conv(torch.cat([x, past], 1)) + x


class Pool(nn.Module):
    def __init__(self, width, frames):
        super().__init__()
        self.frames = frames
        self.conv = nn.Conv2d(frames * width, width, 1, bias=False)

    def forward(self, x):
        return self.conv(x.reshape(-1, self.frames * x.shape[1], *x.shape[2:]))


class Grow(nn.Module):
    def __init__(self, width, frames):
        super().__init__()
        self.conv = nn.Conv2d(width, frames * width, 1, bias=False)

    def forward(self, x):
        return self.conv(x).reshape(-1, *x.shape[1:])


class Clamp(nn.Module):
    def forward(self, x):
        return torch.tanh(x / 3) * 3


class ImitatedTaehv(nn.Module):
    """All frames at once, or one after the other with the memory of each block (`in_iteration`)."""

    def __init__(self, width=8, z=4, patch=2, in_iteration=False):
        super().__init__()
        self.patch, self.in_iteration = patch, in_iteration
        pixels = 3 * patch**2
        self.encoder = nn.Sequential(
            nn.Conv2d(pixels, width, 3, padding=1),
            nn.ReLU(inplace=True),
            Pool(width, 2),
            nn.Conv2d(width, width, 3, padding=1, stride=2, bias=False),
            Memory(width),
            nn.Conv2d(width, z, 3, padding=1),
        )
        self.decoder = nn.Sequential(
            Clamp(),
            nn.Conv2d(z, width, 3, padding=1),
            nn.ReLU(inplace=True),
            Memory(width),
            DepthwiseMemory(width),
            nn.Upsample(scale_factor=2),
            Grow(width, 2),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, pixels, 3, padding=1),
        )

    def encode(self, video):
        x = F.pixel_unshuffle(video.transpose(1, 2), self.patch)
        x = torch.cat([x, x[:, -1:].repeat_interleave(-x.shape[1] % 2, dim=1)], 1)
        return self.through(self.encoder, x).transpose(1, 2)

    def decode(self, latent):
        x = F.pixel_shuffle(self.through(self.decoder, latent.transpose(1, 2)), self.patch)
        return x[:, 1:].transpose(1, 2)  # the frames that only the start has

    def through(self, blocks, x):
        return self.one_by_one(blocks, x) if self.in_iteration else self.at_once(blocks, x)

    def at_once(self, blocks, x):
        n = x.shape[0]
        x = x.flatten(0, 1)
        for block in blocks:
            if isinstance(block, (Memory, DepthwiseMemory)):
                videos = x.reshape(n, -1, *x.shape[1:])
                past = F.pad(videos, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1].reshape(x.shape)
                x = block(x, past)
            else:
                x = block(x)
        return x.view(n, -1, *x.shape[1:])

    def one_by_one(self, blocks, x):
        memory, done = [None] * len(blocks), []
        queue = [(frame, 0) for frame in x.unbind(1)]
        while queue:
            frame, at = queue.pop(0)
            if at == len(blocks):
                done.append(frame)
                continue
            queue[:0] = [(each, at + 1) for each in self.step(blocks[at], at, frame, memory)]
        return torch.stack(done, 1)

    @staticmethod
    def step(block, at, frame, memory):
        """What a block makes of one more frame: none, one, or several."""
        if isinstance(block, (Memory, DepthwiseMemory)):
            past = torch.zeros_like(frame) if memory[at] is None else memory[at]
            memory[at] = frame.clone()
            return [block(frame, past)]
        if isinstance(block, Pool):
            memory[at] = [*(memory[at] or []), frame]
            if len(memory[at]) < block.frames:
                return []
            frames, memory[at] = memory[at], None
            return [block(torch.stack(frames, 1).flatten(0, 1))]
        y = block(frame)
        return list(y.view(frame.shape[0], -1, *y.shape[1:]).unbind(1))
