"""Patch the Wan 2.1 autoencoder, stream a few frames through nkisim, and draw them.

    pip install 'trnconv[diffusers,plots]'
    python examples/decode_wan.py

The class is diffusers' own. The weights are random and the channels few, so that two cores simulate
every convolution in a minute or two: the frames show what the patch changes, not what Wan paints.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

try:
    import torch
except ModuleNotFoundError:
    sys.exit("This example needs torch and diffusers: pip install 'trnconv[diffusers,plots]'.")
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nkisim.machine import TRN2
from trnconv.errors import UnsupportedError
from trnconv.models import ModelEntry, find
from trnconv.pytorch import PatchReport, decode_in_chunks, patched
from trnconv.pytorch.estimate import Estimate, estimate, run_entry_on_meta
from trnconv.pytorch.model_builder import build

Tensor = torch.Tensor
CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.Conv3d)
COLUMNS = 5  # frames in the picture
PIXELS = 8  # rows or columns of a latent


@dataclass(frozen=True)
class Outcome:
    """The same latents decoded three times, and what the patch reported."""

    exact: Tensor  # torch, float32
    floor: Tensor  # torch, bf16
    ours: Tensor  # trnconv in nkisim, bf16
    report: PatchReport
    seconds: float  # of the simulation


def main(arguments: Sequence[str] | None = None) -> None:
    """Decode, report, draw, estimate."""
    asked = _arguments(arguments)
    figure = _figure() if asked.picture else None
    console = Console()
    entry = find("wan2.1")
    console.print(
        f"{entry.diffusers_class} of diffusers, [bold]random weights, reduced to"
        f" {entry.reduced_config['base_dim']} channels[/] where Wan has {entry.config['base_dim']}."
    )
    latents = turning_noise(
        entry, asked.latent_frames, asked.height // PIXELS, asked.width // PIXELS
    )
    outcome = decode(entry, latents, asked.chunk, console)
    console.print(summary(outcome.report, outcome.seconds))
    console.print(errors(outcome))
    if figure is not None:
        draw(outcome, figure)
        figure.savefig(asked.picture, dpi=150)
        console.print(f"Picture: {asked.picture}")
    if not asked.skip_estimate:
        with console.status("Wan 2.1 on the meta device ..."):
            found = estimate(run_entry_on_meta(entry, entry.production, "decode"), TRN2)
        console.print(modelled(entry, found))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    first = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=first)
    parser.add_argument("--latent-frames", type=int, default=4, help="frames are 4 n - 3")
    parser.add_argument("--height", type=int, default=64, help="pixels, a multiple of 8")
    parser.add_argument("--width", type=int, default=96, help="pixels, a multiple of 8")
    parser.add_argument("--chunk", type=int, default=2, help="latent frames at a time")
    drawn = "a .png or .svg to write; '' for none"
    parser.add_argument("--picture", default="decode_wan.png", help=drawn)
    parser.add_argument("--skip-estimate", action="store_true", help="no time of the real model")
    asked = parser.parse_args(arguments)
    if asked.height % PIXELS or asked.width % PIXELS or min(asked.height, asked.width) < PIXELS:
        parser.error(f"{asked.height} x {asked.width} pixels: multiples of 8, at least 8")
    if min(asked.latent_frames, asked.chunk) < 1:
        parser.error("at least one latent frame, and at least one at a time")
    return asked


def turning_noise(entry: ModelEntry, frames: int, height: int, width: int) -> Tensor:
    """Latents that go from one noise to another, an eighth of a turn a frame, in bf16."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, entry.reduced_latent_channels, 1, height, width)
    start, goal = (torch.randn(shape, generator=generator) for _ in range(2))
    angle = (torch.arange(frames) * (math.pi / 4)).reshape(-1, 1, 1)
    return (start * angle.cos() + goal * angle.sin()).bfloat16()


def decode(entry: ModelEntry, latents: Tensor, chunk: int, console: Console) -> Outcome:
    """In float32 and bf16 by torch, and in bf16 by our kernels."""
    model = build(entry, reduced=True, dtype=torch.bfloat16)
    _fade(model)
    floor, calls = _streamed(model, latents, chunk)
    start = time.perf_counter()
    with patched(model, backend="nkisim") as report, _bar(console, calls) as advance:
        ours, _ = _streamed(model, latents, chunk, advance)
    seconds = time.perf_counter() - start
    exact, _ = _streamed(torch.nn.Module.to(model, dtype=torch.float32), latents.float(), chunk)
    return Outcome(exact, floor, ours, report, seconds)


def _fade(model: Any) -> None:
    """Half the contrast: random weights overdo it, and Wan clamps frames to [-1, 1]."""
    with torch.no_grad():
        for parameter in model.decoder.conv_out.parameters():
            parameter.mul_(0.5)


def _streamed(
    model: torch.nn.Module,
    latents: Tensor,
    chunk: int,
    advance: Callable[[], None] = lambda: None,
) -> tuple[Tensor, int]:
    """All frames, and how many convolutions it took."""
    calls = 0

    def called(*_: Any) -> None:
        nonlocal calls
        calls += 1
        advance()

    modules = [module for module in model.modules() if isinstance(module, CONVOLUTIONS)]
    hooks = [module.register_forward_hook(called) for module in modules]
    try:
        frames = torch.cat(list(decode_in_chunks(model, latents.split(chunk, dim=2))), dim=2)
    finally:
        for hook in hooks:
            hook.remove()
    return frames, calls


@contextmanager
def _bar(console: Console, calls: int) -> Iterator[Callable[[], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("convolutions"), TimeElapsedColumn())
    with Progress(TextColumn("nkisim"), *columns, console=console) as progress:
        task = progress.add_task("", total=calls)
        yield lambda: progress.advance(task)


def summary(report: PatchReport, seconds: float) -> Table:
    """What the patch took, and what it spared."""
    works = report.stats.works
    spliced = sum(calls for work, calls in works.items() if work.pieces)
    folded = sum(calls for work, calls in works.items() if work.instead_of is not None)
    ended = sum(calls for work, calls in works.items() if work.epilogue.residual != "none")
    table = _two_columns("What the patch did")
    table.add_row(
        "convolutions patched, left to torch", f"{len(report.patched)}, {len(report.left_to_torch)}"
    )
    table.add_row("calls, distinct kernels", f"{sum(works.values())}, {len(works)}")
    table.add_row("read the cache where it lies", f"{spliced} calls")
    table.add_row("took an upsampling over", f"{folded} calls")
    table.add_row("added a residual on the way out", f"{ended} calls")
    table.add_row("simulated in", f"{seconds:.0f} s on this computer")
    return table


def errors(outcome: Outcome) -> Table:
    """Both bf16 results against float32."""
    table = Table(title="Error against torch in float32", title_justify="left")
    table.add_column("")
    table.add_column("rms", justify="right")
    table.add_column("largest", justify="right")
    for name, frames in (("torch, bf16", outcome.floor), ("trnconv, bf16", outcome.ours)):
        largest = (frames.float() - outcome.exact).abs().max()
        table.add_row(name, f"{_rms(frames, outcome.exact):.5f}", f"{largest:.5f}")
    return table


def _rms(frames: Tensor, exact: Tensor) -> float:
    return (frames.float() - exact).square().mean().sqrt().item()


def modelled(entry: ModelEntry, found: Estimate) -> Table:
    """The real model at the size people run it at."""
    size = entry.production
    table = _two_columns(f"Wan 2.1 decode, all channels, {size.name}: modelled, not measured")
    table.add_row("convolutions, one trn2 core", f"{found.seconds:.1f} s")
    table.add_row("their HBM traffic", f"{found.convolution_bytes / 1e12:.2f} TB")
    table.add_row("copies besides", f"{found.copied_bytes / 1e12:.2f} TB")
    table.add_row("activations and cache, at most", f"{found.run.peak_bytes / 1e9:.1f} GB")
    table.add_row("not included", "norms, activations, attention, launches")
    return table


def _two_columns(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    return table


def _figure() -> Any:
    """An empty figure; asked for early, so that nobody waits for a refusal."""
    try:
        module = importlib.import_module("matplotlib.figure")
    except ImportError as missing:
        raise UnsupportedError(
            "a picture is drawn with matplotlib, which cannot be imported here. Run"
            " `pip install 'trnconv[plots]'`, or leave it out with --picture ''."
        ) from missing
    return module.Figure(layout="constrained")


def draw(outcome: Outcome, figure: Any) -> None:
    """Three rows of frames: torch, trnconv, and the difference, brightened."""
    difference = outcome.ours.float() - outcome.floor.float()
    gain = _gain(difference)
    rows = (
        ("torch\nbf16", outcome.floor),
        ("trnconv\nin nkisim, bf16", outcome.ours),
        (f"difference\nx {gain:.0f}", difference * gain),
    )
    shown = _spread(outcome.ours.shape[2])
    height, width = outcome.ours.shape[3:]
    inches = 1.9  # of a frame's width
    figure.set_size_inches(inches * len(shown) + 1.3, len(rows) * inches * height / width + 0.8)
    axes = figure.subplots(len(rows), len(shown), squeeze=False)
    for (label, frames), line in zip(rows, axes, strict=True):
        for frame, axis in zip(shown, line, strict=True):
            axis.imshow(_pixels(frames[0, :, frame]), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
    for frame, axis in zip(shown, axes[0], strict=True):
        axis.set_title(f"frame {frame}", fontsize=10)
    figure.suptitle(
        "Wan 2.1 decoder of diffusers, random weights, reduced width. Error against float32, rms:"
        f" torch {_rms(outcome.floor, outcome.exact):.4f},"
        f" trnconv {_rms(outcome.ours, outcome.exact):.4f}",
        fontsize=10,
    )


def _gain(difference: Tensor) -> float:
    """The power of two that makes the largest difference visible; 1 if there is none."""
    largest = difference.abs().max().item()
    return 2.0 ** math.floor(-math.log2(largest)) if largest > 0 else 1.0


def _spread(frames: int) -> list[int]:
    """Frames from the first to the last, evenly."""
    count = min(frames, COLUMNS)
    return [round(at * (frames - 1) / max(1, count - 1)) for at in range(count)]


def _pixels(frame: Tensor) -> Any:
    """[3, H, W] in [-1, 1] as [H, W, 3] in [0, 1]."""
    return (frame.float().movedim(0, -1) / 2 + 0.5).clamp(0, 1).numpy()


if __name__ == "__main__":
    try:
        main()
    except UnsupportedError as refusal:
        sys.exit(f"decode_wan: {refusal}")
