"""What ranks run in the tests of trnconv.parallel. Ranks find these functions by name."""

import os
import time
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from small_vae import SmallVae, built, clip
from trnconv.errors import ShapeError, TrnconvError
from trnconv.models import Size, find
from trnconv.parallel import (
    LostRankError,
    Options,
    TrafficKind,
    shard_,
    share_tiles_,
    unshard_,
    watch,
)
from trnconv.parallel.agreement import Agreement
from trnconv.pytorch import model_builder, patch_, patched

FLOAT32 = Options(backend="torch")


def given(name, phase, dtype, size):
    """The reduced model, what goes in, and the rows of it that must stay together."""
    entry = find(name)
    model = model_builder.build(entry, reduced=True, dtype=dtype)
    clip_size = Size("test", *size)
    if phase == "decode":
        return (
            entry,
            model,
            model_builder.example_latent(entry, clip_size, reduced=True, dtype=dtype),
            1,
        )
    return entry, model, model_builder.example_video(entry, clip_size, dtype=dtype), 8


def run_phase(entry, model, phase, x):
    run = model_builder.decode if phase == "decode" else model_builder.encode
    with torch.no_grad():
        return run(model, entry, x)


def alone(name, phase, dtype, size, options=None):
    """On one rank: patched, or, without options, as the model is."""
    entry, model, x, _ = given(name, phase, dtype, size)
    if options is None:
        return run_phase(entry, model, phase, x)
    with patched(model, reproducible=options.reproducible, backend=options.backend):
        return run_phase(entry, model, phase, x)


class Outcome(NamedTuple):
    """What a rank has to say of a model in bands."""

    y: Any  # the whole result
    halo_bytes: int  # received
    times: dict  # transfers by kind
    gathering: tuple  # modules on whole tensors
    apart: int  # convolutions that ran while halos travelled


def sharded(model, group, cut, shares, options):
    """By rows or columns over a group; by both over a mesh of such a shape, of all ranks."""
    if isinstance(cut, str):
        return shard_(model, group, cut, shares, options)
    mesh = init_device_mesh("cpu", cut, mesh_dim_names=("down", "across"))
    return shard_(model, mesh, shares=shares, options=options, dims=("height", "width"))


def in_bands(group, rank, name, phase, dtype, size, axis, shares, options):
    """The outcome of one run, when it is known which modules mix all positions."""
    entry, model, x, unit = given(name, phase, dtype, size)
    shards = sharded(model, group, axis, shares, options)
    try:
        band = shards.split(x, unit)
        if shards.gathering == ():
            run_phase(entry, model, phase, band)  # finds out which modules mix all positions
            shards.traffic.clear()
            shards.spread.apart.clear()
        y = shards.whole(run_phase(entry, model, phase, shards.split(x, unit)))
        times = {kind.value: shards.traffic.times(kind) for kind in TrafficKind}
        received, apart = shards.traffic.received(TrafficKind.halo), shards.spread.apart.total()
        return Outcome(y, received, times, shards.gathering, apart)
    finally:
        unshard_(shards)


def on_a_mesh(group, rank, name, phase, size):
    """Two pairs of ranks, each with a video of its own, on one axis of a mesh of two."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("videos", "rows"))
    entry, model, x, unit = given(name, phase, torch.float32, size)
    shards = shard_(model, mesh["rows"], options=FLOAT32)
    try:
        x = x * (1 + mesh["videos"].get_local_rank())
        return shards.whole(run_phase(entry, model, phase, shards.split(x, unit)))
    finally:
        unshard_(shards)


def as_dtensors(group, rank, name, phase, size, shape):
    """Placements and values of a result as a DTensor, of a DTensor; bytes sent for that."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("down", "across"))
    entry, model, x, unit = given(name, phase, torch.float32, size)
    shards = shard_(model, mesh, options=FLOAT32, dims=("height", "width"))
    try:
        placed = distribute_tensor(x, mesh, [Shard(3), Shard(4)])
        band = shards.split(placed, unit)
        y = shards.as_dtensor(run_phase(entry, model, phase, band))
        sent = shards.traffic.received(TrafficKind.result)
        return str(tuple(y.placements)), y.full_tensor(), sent
    except ShapeError as error:
        return str(error)
    finally:
        unshard_(shards)


def refused_dtensor(group, rank, what):
    """The error of a DTensor that no bands are made of, or of bands that no DTensor is."""
    # Of a group that is there: if some ranks make one alone, the next of all has several names.
    mesh = DeviceMesh.from_group(group, "cpu", mesh_dim_names=("rows",))
    model = built().eval().requires_grad_(requires_grad=False)
    shares = [1, 3] if what == "uneven" else None
    shards = shard_(model, group if what == "group" else mesh, "rows", shares, FLOAT32)
    try:
        if what == "uneven":
            shards.as_dtensor(shards.split(clip(), 2))
        else:
            replicated = what == "replicated"
            placement = Replicate() if replicated else Shard(3)
            shards.split(distribute_tensor(clip(), mesh, [placement]), 2)
    except TrnconvError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        unshard_(shards)
    return "nothing was refused"


def small_vae(group, rank, axis, shares, exchange, learns):
    """(result, gradient of the input, gradients of parameters summed over ranks) of our own VAE."""
    model, x = built(), clip()
    shards = sharded(model, group, axis, shares, Options(backend="torch", exchange=exchange))
    try:
        band = shards.split(x, 2)
        if not learns:
            with torch.no_grad():
                return shards.whole(model(band)), None, {}
        y = model(band.requires_grad_())
        y.square().sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)
        return (
            shards.whole(y.detach()),
            shards.whole(band.grad),
            {name: parameter.grad for name, parameter in model.named_parameters()},
        )
    finally:
        unshard_(shards)


class Alone(nn.Module):
    """One layer as a model, with what comes before it."""

    def __init__(self, layer, before=None):
        super().__init__()
        self.layer = layer
        self.before = before or nn.Identity()

    def forward(self, x):
        return self.layer(self.before(x))


def layers(is_wide=False):
    """Convolutions of every kind that couples rows, in bf16, with what they read."""
    torch.manual_seed(0)
    made = {
        "padded": Alone(nn.Conv3d(8, 12, 3, padding=1)),
        "replicated": Alone(nn.Conv3d(8, 8, 3, padding=1, padding_mode="replicate")),
        "reflected": Alone(nn.Conv2d(8, 8, 5, padding=2, padding_mode="reflect")),
        "strided": Alone(nn.Conv2d(8, 8, 3, stride=2), nn.ZeroPad2d((0, 1, 0, 1))),
        "upsampled": Alone(nn.Conv2d(8, 8, 3, padding=1), nn.Upsample(scale_factor=2.0)),
        "dilated": Alone(nn.Conv2d(8, 8, 3, padding=2, dilation=2)),
        "wider than a band": Alone(nn.Conv2d(8, 8, 7, padding=3)),
    }
    numbers = torch.Generator().manual_seed(1)
    result = {}
    for name, model in made.items():
        columns = 8 if is_wide else 6
        shape = (1, 8, 2, 6, columns) if isinstance(model.layer, nn.Conv3d) else (2, 8, 6, columns)
        x = torch.randn(shape, generator=numbers).bfloat16()
        result[name] = (model.bfloat16().eval().requires_grad_(requires_grad=False), x)
    return result


def layers_in_bands(group, rank, axis, shares, options):
    """The whole result of each layer."""
    results = {}
    for name, (model, x) in layers(axis == (1, 4)).items():
        shards = sharded(model, group, axis, shares, options)
        unit = 2 if name == "strided" else 1
        results[name] = shards.whole(model(shards.split(x, unit)))
        unshard_(shards)
    return results


def layer_halo_bytes(group, rank, mesh, options):
    """Received for one convolution of 2 images of 6 x 6."""
    model, x = layers()["upsampled"]
    model.before = nn.Identity()
    shards = sharded(model, group, mesh, None, options)
    try:
        model(shards.split(x))
        return shards.traffic.received(TrafficKind.halo)
    finally:
        unshard_(shards)


class Foreign(nn.Module):
    """A model that does one thing that bands cannot do."""

    def __init__(self, what):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.what = what

    def forward(self, x):
        y = self.conv(x)
        return {
            "pool": lambda: nn.functional.avg_pool2d(y, 2),
            "mean": lambda: y.mean(dim=-2, keepdim=True),
            "slice": lambda: y[:, :, 1:, :],
            "bilinear": lambda: nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear"),
            "padded": lambda: nn.functional.pad(y, (0, 0, 1, 1)) + 1,
        }[self.what]()


BAD_CALLS = {
    "axis": lambda group: shard_(SmallVae(), group, "frames"),
    "shares": lambda group: shard_(SmallVae(), group, "rows", [1.0] * 7),
    "exchange": lambda group: shard_(SmallVae(), group, options=Options(exchange="by pigeon")),
    "overlap": lambda group: shard_(SmallVae(), group, options=Options(overlap="perhaps")),
    "double": lambda group: shard_(SmallVae().double(), group),
    "transposed": lambda group: shard_(Alone(nn.ConvTranspose2d(3, 3, 4)), group),
    "mesh": lambda _: shard_(
        SmallVae(), init_device_mesh("cpu", (4, 1), mesh_dim_names=("a", "b"))
    ),
    "dims": lambda group: shard_(SmallVae(), group, dims=("height", "width")),
    "depth": lambda group: shard_(SmallVae(), group, dims=("height", "depth")),
}


def refused(group, rank, what):
    """What is raised, as text; the group can be used again."""
    options = FLOAT32
    try:
        if what == "tiling":
            model = model_builder.build(find("wan2.1"), reduced=True, tiling="on")
            shard_(model, group, options=options)
        elif what in BAD_CALLS:
            BAD_CALLS[what](group)
        else:
            _ask(group, what, options)
    except Exception as refusal:  # noqa: BLE001 (its type is looked at)
        return type(refusal).__name__, str(refusal)
    return "nothing", ""


def _ask(group, what, options):
    model = Foreign(what).eval().requires_grad_(requires_grad=False)
    shards = shard_(model, group, options=options)
    try:
        model(shards.split(torch.zeros(1, 3, 8, 8)))
    finally:
        unshard_(shards)


def decode_until(group, rank, seconds, timeout_s, begun):
    """Decode again and again, until somebody is missing; a file says that it has begun."""
    entry, model, x, unit = given("wan2.1", "decode", torch.float32, (9, 48, 40))
    shards = shard_(model, group, options=Options(backend="torch", timeout_s=timeout_s))
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        run_phase(entry, model, "decode", shards.split(x, unit))
        (begun / str(rank)).touch()
    return "nobody was missing"


def dawdle(group, rank, slow, timeout_s, shape):
    """Decode on a mesh, of which one rank takes too long after the first layer; the error."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("down", "across"))
    entry, model, x, unit = given("wan2.1", "decode", torch.float32, (5, 48, 64))
    options = Options(backend="torch", timeout_s=timeout_s)
    shards = shard_(model, mesh, options=options, dims=("height", "width"))
    run_phase(entry, model, "decode", shards.split(x, unit))  # layers are planned here
    band = shards.split(x, unit)
    if rank == slow:
        block = model.decoder.mid_block
        block.register_forward_pre_hook(lambda *_: time.sleep(2 * timeout_s))
    began = time.monotonic()
    try:
        run_phase(entry, model, "decode", band)
    except LostRankError as error:
        return time.monotonic() - began, str(error)
    return time.monotonic() - began, "nobody was late"


def come_late(group, rank, absent, timeout_s):
    """All but one go to `shard_`."""
    if rank != absent:
        shard_(SmallVae(), group, options=Options(timeout_s=timeout_s))


def differing(group, rank, what, odd):
    """(seconds since one rank did something else, the error as text), of every rank.

    The first video, which is alike, is not counted: layers are planned there.
    """
    began = [time.monotonic()]
    try:
        _differ(group, what, rank == odd, began)
    except TrnconvError as error:
        return time.monotonic() - began[-1], f"{type(error).__name__}: {error}"
    finally:
        os.environ.pop("NEURON_CC_FLAGS", None)
    return time.monotonic() - began[-1], "nothing was noticed"


def _differ(group, what, is_odd, began):
    model = built().eval().requires_grad_(requires_grad=False)
    options = FLOAT32
    if is_odd and what == "weights":
        model.reflecting.weight[0, 0, 0, 0, 0] += 1
    if is_odd and what == "options":
        options = replace(options, overlap="never")
    if is_odd and what == "environment":
        os.environ["NEURON_CC_FLAGS"] = "--fast"
    shards = shard_(model, group, options=options)
    try:
        for video in range(3):  # one as all others, then
            late = is_odd and video > 0
            if video == 1:
                began.append(time.monotonic())
            if late and what == "written":
                model.up.bias.add_(1)
            x = clip(18 if late and what == "shape" else 16)
            if late and what == "values":
                x = x.flip(-1)
            band = shards.split(x, 2)
            if late and what == "frames":
                band = torch.cat([band, band[:, :, :2]], dim=2)
            model(band)
    finally:
        unshard_(shards)


def ended_by_rank_zero(group, rank, what, odd):
    """The error of other ranks, if one differs and rank 0's process ends as soon as it knows.

    The others read statements late, and look for signs of life seldom, as on a busy machine.
    """
    if rank:
        read = Agreement._all
        Agreement._all = lambda *args: (time.sleep(1.0), read(*args))[1]
        watch.INTERVAL_S = 1.5
    seconds, text = differing(group, rank, what, odd)
    if rank == 0:
        os._exit(0)
    return seconds, text


def same_or_not(group, rank, kind, values, *, check_values):
    """What becomes of a video that the other rank may not have, for bands and for tiles."""
    options = Options(backend="torch" if kind == "bands" else None, check_values=check_values)
    if kind == "bands":
        model, x = built().eval().requires_grad_(requires_grad=False), clip()
        holder = shard_(model, group, options=options)
        run = lambda x: model(holder.split(x, 2))  # noqa: E731
    else:
        entry, model, x = tiled("wan2.1", "decode")
        holder = share_tiles_(model, group, options)
        run = lambda x: run_phase(entry, model, "decode", x)  # noqa: E731
    try:
        run(_other(x, values) if rank == 1 else x)
    except TrnconvError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        unshard_(holder) if kind == "bands" else holder.close()
    return "nothing was noticed"


def _other(x, values):
    """Values of the same shape: moved, in another order in memory only, or off by a bit."""
    if values == "moved":
        return x.roll(1, -1)
    if values == "laid out otherwise":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    other = x.clone()
    other.view(torch.int32)[(-1,) * x.dim()] ^= 1
    return other


def agreeing(group, rank):
    """Shapes of results, all of one model: other sizes, and other weights, on all ranks alike."""
    model = built().eval().requires_grad_(requires_grad=False)
    shards = shard_(model, group, options=FLOAT32)
    try:
        shapes = [tuple(shards.whole(model(shards.split(clip(n), 2))).shape) for n in (16, 20)]
        model.up.bias.add_(1)
        shapes.append(tuple(shards.whole(model(shards.split(clip()[:, :, :2], 2))).shape))
        return shapes
    finally:
        unshard_(shards)


def tiled(name, phase, size=(9, 48, 40), is_patched=False):
    """A reduced model with tiles so small that there are many, and what goes in."""
    entry, model, x, _ = given(name, phase, torch.float32, size)
    model.enable_tiling()
    for attribute, pixels in (("min", 24), ("stride", 16)):
        for side in ("height", "width"):
            setattr(model, f"tile_sample_{attribute}_{side}", pixels)
            setattr(model, f"tile_latent_{attribute}_{side}", pixels // 8)
    if is_patched:
        patch_(model, backend="torch")
    return entry, model, x


def in_tiles(group, rank, name, phase, is_patched):
    """(result, tiles that this rank decoded or encoded, bytes received), of tiles shared out."""
    entry, model, x = tiled(name, phase, is_patched=is_patched)
    calls = []
    half = getattr(model, f"{phase}r")
    own = half.forward
    half.forward = lambda *args, **kwargs: calls.append(1) or own(*args, **kwargs)
    tiles = share_tiles_(model, group)
    try:
        y = run_phase(entry, model, phase, x)
        return y, len(calls), tiles.traffic.received(TrafficKind.result)
    finally:
        tiles.close()
