"""`python -m benchmarks audio`: decoders of audio, planned whole, beside this computer's CPU.

The decoders are those of `benchmarks/audio_decoders.py`. Modelled on trn2, two cores, bf16, by the
planner's cost model, without launches; CPU seconds are measured here, of one thread in float32.
Needs torch.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.table import Column, aligned, significant
from trnconv.model_plan import ModelPlan, plan_trace, shares_by_bound
from trnconv.models import Size

if TYPE_CHECKING:
    from benchmarks.audio_decoders import AudioDecoder

HELP = "vocoders and codecs: modelled, and measured on this CPU"
SAMPLES = 44_032  # 1 s at 44.1 kHz, 2 s at 22.05
NAMES = ("hifi-gan", "dac")
_COLUMNS = (
    Column("decoder", "<"),
    Column("samples"),
    Column("GMAC"),
    Column("calls"),
    Column("left to torch"),
    Column("convolutions\nms"),
    Column("others\nms"),
    Column("CPU\ns"),
    Column("what bounds convolutions, by time", "<"),
)


@dataclass(frozen=True)
class AudioRow:
    """A decode of so many samples."""

    title: str
    samples: int
    plan: ModelPlan
    cpu_seconds: float  # of one thread, without waiting

    @property
    def bounds(self) -> str:
        """Shares of the convolutions' time by what bounds them."""
        return ", ".join(f"{bound} {share:.0%}" for bound, share in shares_by_bound(self.plan))

    def cells(self) -> list[str]:
        """A line of the table."""
        return [
            self.title,
            f"{self.samples}",
            significant(self.plan.macs / 1e9),
            f"{self.plan.calls}",
            f"{len(self.plan.trace.left_to_torch)}",
            significant(self.plan.seconds * 1e3),
            significant(self.plan.operation_seconds * 1e3),
            significant(self.cpu_seconds),
            self.bounds,
        ]


def row_of(decoder: AudioDecoder, samples: int) -> AudioRow:
    """Plan it and run it."""
    frames = samples // decoder.frame
    made = frames * decoder.frame
    return AudioRow(decoder.title, made, _plan(decoder, frames), _cpu_seconds(decoder, frames))


def _plan(decoder: AudioDecoder, frames: int) -> ModelPlan:
    import torch  # noqa: PLC0415 (torch: for this command only)

    from trnconv.pytorch.own_module import trace_own  # noqa: PLC0415 (as above)

    with torch.device("meta"):
        model = decoder.make().eval().requires_grad_(requires_grad=False)
    shape = (1, decoder.channels, frames)
    trace = trace_own(decoder.title, model, shape, "forward", "bfloat16")
    return plan_trace(trace, Size("", 1, 1, frames))


def _cpu_seconds(decoder: AudioDecoder, frames: int) -> float:
    """The second of two runs, so that nothing is set up in it."""
    import torch  # noqa: PLC0415 (as above)

    torch.manual_seed(0)
    model = decoder.make().eval().requires_grad_(requires_grad=False)
    x = torch.randn(1, decoder.channels, frames)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            model(x[:, :, :2])
            start = time.process_time()
            model(x)
            return time.process_time() - start
    finally:
        torch.set_num_threads(threads)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--decoder", action="append", choices=NAMES, help="only this one")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of one channel")


def main(options: argparse.Namespace) -> int:
    """Print the table; the exit code."""
    from benchmarks.audio_decoders import DECODERS  # noqa: PLC0415 (torch: as above)

    rows = [row_of(DECODERS[name], options.samples) for name in options.decoder or NAMES]
    print(f"Decoders {rows[0].plan.label}, bf16; no launches. CPU: measured here, float32.\n")
    print(aligned(list(_COLUMNS), [row.cells() for row in rows]))
    return 0
