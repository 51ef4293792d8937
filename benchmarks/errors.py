"""`python -m benchmarks errors`: every registered model against float32, beside torch's bf16.

Models of their full width with random weights on small clips, simulated; norms, attention and
Winograd as a patched model has them, also for convolutions that are small only because the clip is.
With `--reduced`, the narrow configurations that tests use: seconds each, but too narrow for
Winograd, and a latent of some dozens of numbers says little.

The ratio is of root mean squares, ours over torch's bf16; in decibels it is what PSNR loses,
whatever the peak. Both are draws: with n outputs a ratio is known to about one part in the square
root of n. Needs the extra `diffusers`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log10, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

from benchmarks.table import Column, aligned
from nkisim.machine import TRN2
from trnconv.algorithms.algorithm import Priced
from trnconv.models import ModelEntry, Size, find, models
from trnconv.problem.policy import BF16, FAST, FASTEST, Policy
from trnconv.runtime.pricing import price

if TYPE_CHECKING:
    from trnconv.pytorch.compare_models import ModelVerdict

HELP = "errors of whole models against float32, ours beside torch's bf16"
STORED = Path(__file__).with_suffix(".json")
RATIO, DECIBELS = 1.02, 0.1
_BOTH = (BF16, FAST)
_ACCURACIES = (*_BOTH, FASTEST)
Plans = tuple[Priced, ...]  # of a launch, one for each core
_LEAST_SIDES = (64, 96)  # pixels of a clip: rows and columns, or more where the latent needs it


@dataclass(frozen=True)
class ModelError:
    """One encode or decode."""

    model: str
    phase: str
    accuracy: str
    ours: float  # RMS, relative to that of the exact result
    floor: float  # the same of torch in bf16
    size: str  # of the clip
    outputs: int
    calls: int  # of convolutions
    fast_calls: int  # by fast algorithms
    left_to_torch: int  # convolutions
    reduced: bool = False
    seed: int = 0
    folded: bool = True  # upsampling may happen inside convolutions

    @property
    def width(self) -> str:
        """Its size, whether the model is narrow, and what was switched off."""
        words = [self.size, "reduced" * self.reduced, "upsampled before" * (not self.folded)]
        return ", ".join(word for word in words if word)

    @property
    def clip(self) -> str:
        """Its size, and what else tells runs apart."""
        return f"{self.width}, seed {self.seed}" if self.seed else self.width

    @property
    def ratio(self) -> float:
        """Ours over torch's."""
        return self.ours / self.floor

    @property
    def lost_db(self) -> float:
        """What PSNR loses against torch's bf16."""
        return 20 * log10(self.ratio)

    @property
    def spread(self) -> float:
        """What the ratio of two draws of so many independent errors varies by, about."""
        return self.ratio / sqrt(self.outputs)

    @property
    def is_within(self) -> bool:
        """No worse than torch's bf16, nearly."""
        return self.ratio <= RATIO and self.lost_db <= DECIBELS


def small_clip(entry: ModelEntry) -> Size:
    """A few rows of latents, and more than one step of time where the model has time."""
    rows, columns = (
        -(-least // step) * step
        for least, step in zip(_LEAST_SIDES, entry.compression[1:], strict=True)
    )
    frames = entry.frames.first + entry.frames.step
    return Size("small", max(1, frames), rows, columns)


def errors_of(
    entry: ModelEntry,
    phase: str,
    accuracies: Sequence[str],
    *,
    reduced: bool,
    seed: int,
    folded: bool = True,
) -> Iterator[ModelError]:
    """One encode or decode under each accuracy; where all plans are the same, so is the run."""
    from trnconv.pytorch.compare_models import (  # noqa: PLC0415 (torch: for this command only)
        ModelRun,
        run_unpatched,
        verdict,
    )
    from trnconv.pytorch.lazy.tensors.context import Rewrites  # noqa: PLC0415 (torch: as below)

    size = entry.tiny if reduced else small_clip(entry)
    subject = ModelRun(entry, phase, size, reduced, seed)
    without = run_unpatched(subject)
    rewrites = Rewrites(fold_upsample=folded)
    known: list[tuple[list[Plans], ModelVerdict]] = []
    for accuracy in accuracies:
        policy = Policy(accuracy, least_macs=0)
        same = [found for plans, found in known if plans == _plans(found, policy)]
        found = same[0] if same else verdict(subject, without, policy, rewrites)
        plans = _plans(found, policy)
        known.append((plans, found))
        yield ModelError(
            entry.name,
            phase,
            accuracy,
            found.ours.rms,
            found.floor.rms,
            f"{size.height}x{size.width}x{size.frames}",
            found.outputs,
            sum(calls for _, calls in found.works),
            sum(
                calls
                for (_, calls), own in zip(found.works, plans, strict=True)
                if own[0].plan.algorithm == "winograd"
            ),
            found.left_to_torch,
            reduced,
            seed,
            folded,
        )


def _plans(estimate_of_model: ModelVerdict, policy: Policy) -> list[Plans]:
    """Of every convolution that ran, under a policy."""
    return [price(work.problem(TRN2, policy=policy)).plans for work, _ in estimate_of_model.works]


def stored_errors(file: Path) -> list[ModelError]:
    """Rows of a file that this command wrote; none if there is no such file."""
    if not file.is_file():
        return []
    rows = json.loads(file.read_text(encoding="utf-8"))["models"]
    return [ModelError(**row) for row in rows]


def store(file: Path, errors: Sequence[ModelError]) -> None:
    """In the order of the registry; of equal runs the last."""
    names = [entry.name for entry in models()]
    latest = {
        (error.model, error.phase, error.accuracy, error.seed, error.folded): error
        for error in errors
    }
    ordered = sorted(latest.values(), key=lambda error: names.index(error.model))
    rows = [asdict(error) for error in ordered]
    file.write_text(json.dumps({"models": rows}, indent=1) + "\n", encoding="utf-8")


def table(errors: Sequence[ModelError]) -> str:
    """A row a run."""
    columns = [Column(name, "<") for name in ("model", "phase", "accuracy", "clip")]
    columns += [Column("fast /\ncalls"), Column("outputs"), Column("ours"), Column("torch\nbf16")]
    columns += [Column("ratio"), Column("+-"), Column("PSNR lost,\ndB")]
    return aligned(columns, [_cells(error) for error in errors])


def _cells(error: ModelError) -> list[str]:
    return [
        error.model,
        error.phase,
        error.accuracy,
        error.clip,
        f"{error.fast_calls}/{error.calls}",
        f"{error.outputs}",
        f"{error.ours:.5f}",
        f"{error.floor:.5f}",
        f"{error.ratio:.3f}",
        f"{error.spread:.3f}",
        f"{error.lost_db:+.2f}",
    ]


def page_lines(errors: Sequence[ModelError]) -> list[str]:
    """The table of `docs/reference/accuracy.md`: a line for each phase of each model."""
    lines = [
        "| model | phase | clip | outputs | torch's bf16 | ratio, bf16 | ratio, fast | +- | fast |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    by_run: dict[tuple[str, str], dict[str, ModelError]] = {}
    for error in (error for error in errors if error.seed == 0 and error.folded):
        by_run.setdefault((error.model, error.phase), {})[error.accuracy] = error
    for (model, phase), of_accuracy in by_run.items():
        default, fast = of_accuracy[BF16], of_accuracy[FAST]
        ratios = f"{default.ratio:.3f} | {fast.ratio:.3f} | {default.spread:.3f}"
        algorithms = f"{default.fast_calls}, {fast.fast_calls} of {default.calls}"
        start = f"| {model} | {phase} | {default.clip} | {default.outputs} | {default.floor:.5f}"
        lines.append(f"{start} | {ratios} | {algorithms} |")
    return lines


def seed_lines(errors: Sequence[ModelError]) -> list[str]:
    """A table of runs that were drawn with several seeds, at the default accuracy."""
    lines = [
        "| model | phase | clip | seeds | mean ratio | +- | deviation | least | most |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    drawn: dict[tuple[str, str, str], list[float]] = {}
    for error in (error for error in errors if error.accuracy == BF16):
        drawn.setdefault((error.model, error.phase, error.width), []).append(error.ratio)
    for (model, phase, width), ratios in drawn.items():
        if len(ratios) > 1:
            deviation = stdev(ratios)
            numbers = (mean(ratios), deviation / sqrt(len(ratios)), deviation)
            cells = [f"{number:.3f}" for number in (*numbers, min(ratios), max(ratios))]
            lines.append(f"| {model} | {phase} | {width} | {len(ratios)} | {' | '.join(cells)} |")
    return lines


def not_run(errors: Sequence[ModelError]) -> list[str]:
    """Models of the registry with an encode or decode that is not among these."""
    have_run = {(error.model, error.phase, error.accuracy) for error in errors}
    return [
        entry.name
        for entry in models()
        if any(
            (entry.name, phase, name) not in have_run for phase in entry.phases for name in _BOTH
        )
    ]


def last_lines(errors: Sequence[ModelError]) -> list[str]:
    """For each accuracy how many runs are within the bar, and the others by name."""
    lines = []
    for accuracy in dict.fromkeys(error.accuracy for error in errors):
        of_accuracy = [error for error in errors if error.accuracy == accuracy]
        beyond = [error for error in of_accuracy if not error.is_within]
        words = f"at most {RATIO} and {DECIBELS} dB at accuracy {accuracy}:"
        names = ", ".join(f"{error.model} {error.phase}" for error in beyond)
        lines.append(
            f"{words} {len(of_accuracy) - len(beyond)}/{len(of_accuracy)}"
            f"{'; not ' if names else ''}{names}"
        )
    return lines


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--phase", choices=("encode", "decode"), help="only this one")
    parser.add_argument(
        "--accuracy", action="append", choices=_ACCURACIES, help="default: bf16 and fast"
    )
    parser.add_argument("--reduced", action="store_true", help="narrow models, tiny clips")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument(
        "--upsample-before", action="store_true", help="not inside convolutions, as torch does"
    )
    parser.add_argument("--stored", action="store_true", help="print what is stored, run nothing")
    parser.add_argument("--markdown", action="store_true", help="as a table of the documentation")
    parser.add_argument(
        "--json", type=Path, default=STORED, help="where rows are kept, beside those of other runs"
    )


def main(options: argparse.Namespace) -> int:
    """Run them one after the other, then print all; the exit code."""
    wanted = [find(name) for name in options.model] if options.model else models()
    accuracies = tuple(options.accuracy or _BOTH)
    known = stored_errors(options.json)
    errors: list[ModelError] = []
    if options.stored:
        names = {entry.name for entry in wanted}
        errors = [error for error in known if error.model in names]
    else:
        jobs = [(model, phase) for model in wanted for phase in model.phases]
        for model, phase in jobs:
            if options.phase in (None, phase):
                errors += errors_of(
                    model,
                    phase,
                    accuracies,
                    reduced=options.reduced,
                    seed=options.seed,
                    folded=not options.upsample_before,
                )
                store(options.json, [*known, *errors])
                print(" ".join(_cells(errors[-1])), file=sys.stderr, flush=True)
    print("Simulated; weights and inputs at random, rounded to bf16.\n")
    rows = [*page_lines(errors), "", *seed_lines(errors)] if options.markdown else [table(errors)]
    print(*rows, "", *last_lines(errors), sep="\n")
    if options.stored and not options.model and not_run(errors):
        print(f"not run: {', '.join(not_run(errors))}")
    return 0
