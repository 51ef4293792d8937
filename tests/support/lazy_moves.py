"""What models do to videos between convolutions: named functions of [N, 4, T, H, W]."""

import torch
from torch.nn import functional

LARGE = 20  # nothing grows beyond twice this


def _grown(x, factors):
    return x if max(x.shape[2:]) > LARGE else functional.interpolate(x, scale_factor=factors)


def _as_images(x):
    return x.permute(0, 2, 1, 3, 4).reshape(-1, x.shape[1], *x.shape[3:])


def _as_video(images, x):
    return images.unflatten(0, (x.shape[0], -1)).permute(0, 2, 1, 3, 4)


def _first_frame_once(x):
    if not 1 < x.shape[2] <= LARGE:
        return x
    others = functional.interpolate(x[:, :, 1:], scale_factor=(2, 1, 1))
    return torch.cat([x[:, :, :1], others], dim=2)


def _first_frame_upsampled_apart(x):
    if x.shape[2] < 2 or max(x.shape[2:]) > LARGE:
        return x
    first = functional.interpolate(x[:, :, 0], scale_factor=2.0).unsqueeze(2)
    return torch.cat([first, functional.interpolate(x[:, :, 1:], scale_factor=2.0)], dim=2)


def _reversed_parts(parts):
    return torch.cat(list(parts)[::-1], dim=2)


def _in_a_buffer(x, allocate=torch.empty_like, cut=1):
    out = allocate(x.contiguous())
    out[:, :, :cut] = x[:, :, :cut] * 2
    if cut < x.shape[2]:
        out[:, :, cut:] = x[:, :, cut:] * 1
    return out


def _frame_by_frame_in_a_buffer(x):
    out = torch.zeros(x.shape, dtype=x.dtype)
    for at in range(x.shape[2]):
        out[:, :, at] = x[:, :, at]
    return out


def _looked_at_before_it_is_whole(x):
    out = torch.zeros(x.shape, dtype=x.dtype)
    first, whole = out[:, :, :1], out[:]
    before = first.clone(), first + 1, out.clone()
    out[:, :, :1] = x[:, :, :1] + 1
    return torch.cat([*before, first, whole, out], dim=2)


def _written_twice(x):
    out = torch.empty_like(x)
    copied = x.clone()
    out[...] = copied
    copied.add_(1)
    kept = out.clone()
    out[:, :, :1] = copied[:, :, :1]
    out[:, :, :1].mul_(2)
    return torch.cat([out, kept, copied], dim=2)


def _padded(*sides, **options):
    return lambda x: functional.pad(x, sides, **options)


def _last_frames_again(x):
    return torch.cat([x[:, :, -2:].clone(), x], dim=2)


JOINED = {
    "cat": lambda x: torch.cat([x, x], dim=2),
    "cat by keyword": lambda x: torch.cat(tensors=[x, x[:, :, :1]], dim=-3),
    "cat of one": lambda x: torch.cat([x], dim=2),
    "cat of channels": lambda x: torch.cat([x[:, 1:], x[:, :1]], dim=1),
    "cat of rows": lambda x: torch.cat([x, x[:, :, :, :1]], dim=3),
    "first frame again": lambda x: torch.cat([x[:, :, :1], x[:, :, :1], x], dim=2),
    "last frame again": lambda x: torch.cat([x, x[:, :, -1:]], dim=2),
    "both ends again": lambda x: torch.cat([x[:, :, :1], x, x[:, :, -1:]], dim=2),
    "zeros before": lambda x: torch.cat([torch.zeros_like(x[:, :, :1]), x], dim=2),
    "nothing before": lambda x: torch.cat([x[:, :, :0], x], dim=2),
    "a copy of nothing before": lambda x: torch.cat(
        [torch.cat([one[:, :, :0].clone(), one], dim=2) for one in x.split(1, dim=1)], dim=1
    ),
    "stack": lambda x: torch.stack([x[:, :, 0], x[:, :, -1]], dim=2),
}
PADDED = {
    "zeros around": _padded(1, 0, 2, 1, 1, 1),
    "zeros of columns": _padded(1, 2),
    "zeros twice": lambda x: functional.pad(functional.pad(x, (1, 0, 0, 1)), (0, 1, 0, 0, 2, 0)),
    "no zeros": _padded(0, 0, 0, 0),
    "ones": _padded(1, 0, 0, 1, value=1.0),
    "cropped and padded": _padded(1, -1, -1, 1, 1, 0),
    "cropped": _padded(-1, 0, 0, -1),
    "replicate": _padded(1, 1, 1, 0, 2, 0, mode="replicate"),
    "reflect": _padded(1, 0, 1, 1, 0, 0, mode="reflect"),
    "reflect twice": lambda x: functional.pad(
        functional.pad(x, (2, 0, 0, 0, 0, 0), mode="reflect"), (1, 0, 0, 0, 0, 0), mode="reflect"
    ),
    "circular": _padded(1, 1, 0, 1, 0, 0, mode="circular"),
    "zeros then replicate": lambda x: functional.pad(
        functional.pad(x, (1, 1)), (0, 0, 1, 0, 1, 0), mode="replicate"
    ),
    "padded, with a cache of that": lambda x: _last_frames_again(
        functional.pad(x, (1, 1, 1, 0, 0, 0), mode="replicate")
    ),
    "replicate then zeros": lambda x: functional.pad(
        functional.pad(x, (1, 1, 1, 1, 1, 0), mode="replicate"), (1, 0, 0, 0, 1, 0)
    ),
}
UPSAMPLED = {
    "pixels doubled": lambda x: _grown(x, (1.0, 2.0, 2.0)),
    "all doubled": lambda x: _grown(x, 2),
    "doubled twice": lambda x: _grown(_grown(x, (1, 2, 2)), (1, 2, 2)),
    "rows to a size": lambda x: functional.interpolate(
        x, size=(x.shape[2], x.shape[3] * 2, x.shape[4])
    ),
    "nearest-exact": lambda x: functional.interpolate(
        x, scale_factor=(1, 2, 1), mode="nearest-exact"
    ),
    "not by whole numbers": lambda x: functional.interpolate(
        x, size=(x.shape[2], x.shape[3] + 1, x.shape[4])
    ),
    "shrunk": lambda x: functional.interpolate(x, size=(x.shape[2], 3, 3)),
    "by one": lambda x: functional.interpolate(x, scale_factor=1),
    "first frame once": _first_frame_once,
    "first frame apart": _first_frame_upsampled_apart,
    "upsampled, then padded": lambda x: functional.pad(_grown(x, (1, 2, 2)), (1, 1, 1, 1)),
    "upsampled, then reflected": lambda x: functional.pad(
        _grown(x, (1, 2, 2)), (1, 1, 1, 0, 0, 0), mode="reflect"
    ),
    "upsampled, then reflected by more": lambda x: functional.pad(
        _grown(x, (1, 2, 2)), (2, 1, 1, 2, 0, 0), mode="reflect"
    ),
    "first frame once, then reflected": lambda x: functional.pad(
        _first_frame_once(x), (0, 0, 0, 0, 1, 1), mode="reflect" if x.shape[2] > 1 else "replicate"
    ),
    "upsampled, with a cache of that": lambda x: _last_frames_again(_grown(x, (1, 2, 2))),
    "padded, then upsampled": lambda x: _grown(functional.pad(x, (1, 0)), (1, 2, 2)),
    "rows interleaved": lambda x: x.repeat_interleave(2, dim=3),
    "frames interleaved": lambda x: x.repeat_interleave(2, dim=-3),
}
CUT = {
    "all but the first": lambda x: x[:, :, 1:] if x.shape[2] > 1 else x,
    "all but the last": lambda x: x[:, :, :-1, :, :] if x.shape[2] > 1 else x,
    "every other": lambda x: x[:, :, ::2],
    "the last frame": lambda x: x[:, :, -1][:, :, None],
    "the first frame": lambda x: x[:, :, 0, ...].unsqueeze(2),
    "squeezed": lambda x: x[:, :, :1].squeeze(2).unsqueeze(2),
    "a window": lambda x: x[:, :, :, 1:, :-1],
    "frame by frame": lambda x: torch.cat([x[:, :, at : at + 1] for at in range(x.shape[2])], 2),
    "split": lambda x: _reversed_parts(x.split(2, dim=2)),
    "split by sizes": lambda x: _reversed_parts(x.split([1, x.shape[2] - 1], dim=2)),
    "chunk": lambda x: _reversed_parts(torch.chunk(x, 2, dim=2)),
    "channels in chunks": lambda x: torch.cat(x.chunk(2, dim=1)[::-1], dim=1),
    "repeat": lambda x: x.repeat(1, 1, 2, 1, 1),
    "repeat nothing": lambda x: torch.cat([x.repeat(1, 1, 0, 1, 1), x], dim=2),
    "repeat videos": lambda x: x.repeat(2, 1, 1, 1, 1),
    "expand": lambda x: x[:, :, :1].expand(-1, -1, 3, -1, -1),
}


def _stacked(x):
    return x.permute(0, 2, 1, 3, 4).reshape(x.shape[0], -1, *x.shape[3:])


def _unstacked(planes, x):
    return planes.view(x.shape[0], x.shape[2], x.shape[1], *planes.shape[2:]).permute(0, 2, 1, 3, 4)


SEEN = {
    "stacked": lambda x: _unstacked(_stacked(x), x),
    "stacked, upsampled": lambda x: _unstacked(
        functional.interpolate(_stacked(x), scale_factor=2.0), x
    ),
    "stacked, padded": lambda x: _unstacked(functional.pad(_stacked(x), (0, 1, 1, 0)), x),
    "stacked, planes normed": lambda x: _unstacked(
        functional.group_norm(_stacked(x), x.shape[2]).round(), x
    ),
    "stacked, a plane": lambda x: _stacked(x)[:, 1:2].unsqueeze(1).expand(x[:, :, :1].shape) * 1,
    "stacked, some frames": lambda x: (
        _unstacked(
            functional.interpolate(_stacked(x)[:, x.shape[1] :], scale_factor=2.0), x[:, :, 1:]
        )
        if x.shape[2] > 1
        else x
    ),
    "channels first, stacked": lambda x: functional.interpolate(
        x.flatten(1, 2), scale_factor=2.0
    ).unflatten(1, x.shape[1:3]),
    "as images": lambda x: _as_video(_as_images(x), x),
    "images upsampled": lambda x: _as_video(
        functional.interpolate(_as_images(x), scale_factor=2.0), x
    ),
    "images padded": lambda x: _as_video(functional.pad(_as_images(x), (0, 1, 0, 1)), x),
    "images by flatten": lambda x: _as_video(x.permute(0, 2, 1, 3, 4).flatten(0, 1), x),
    "viewed": lambda x: x.contiguous().view(x.shape),
    "transposed": lambda x: x.transpose(3, 4),
    "rows flattened": lambda x: x.flatten(3).reshape(x.shape),
    "contiguous": lambda x: x.permute(0, 2, 1, 3, 4).contiguous().permute(0, 2, 1, 3, 4),
    "clone": lambda x: x.clone(),
    "flipped": lambda x: x.flip(2),
    "up and down": lambda x: x.double().float(),
    "down and up": lambda x: x.bfloat16().float(),
    "type of another": lambda x: x.to(torch.float64).type_as(x),
    "same type": lambda x: x.to(torch.float32).to("cpu"),
}
COMPUTED = {
    "plus itself": lambda x: x + x,
    "relu": functional.relu,
    "minus": lambda x: 2 - x,
    "changed in place": lambda x: x.clone().add_(1),
}
BUFFERS = {
    "buffer": _in_a_buffer,
    "buffer of zeros": lambda x: _in_a_buffer(x, torch.zeros_like, x.shape[2] - 1),
    "new buffer": lambda x: _in_a_buffer(x, lambda y: y.new_empty(y.shape)),
    "zeros, not all written": lambda x: _in_a_buffer(x, lambda y: y.new_zeros(y.shape))[:, :, :1],
    "buffer of frames": _frame_by_frame_in_a_buffer,
    "buffer, looked at": _looked_at_before_it_is_whole,
    "buffer, written twice": _written_twice,
    "buffer of zeros alone": lambda x: x + torch.zeros_like(x),
}
MOVES = {**BUFFERS, **JOINED, **PADDED, **UPSAMPLED, **CUT, **SEEN, **COMPUTED}
