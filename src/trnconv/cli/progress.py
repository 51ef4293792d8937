"""How far an encoding is, on stderr: a bar on a terminal, a line a shard elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from trnconv.corpus import CorpusRun
    from trnconv.corpus.jobs.metrics import ShardMetrics

Advance = Callable[["ShardMetrics"], None]


@contextmanager
def shard_progress(run: CorpusRun) -> Iterator[Advance]:
    """A function to call with each shard that is done."""
    console = Console(stderr=True, highlight=False)
    total, before = run.plan.shards, run.done_before()
    if not console.is_terminal:
        yield _lines(console, total, before)
        return
    columns = (TextColumn("shards"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bad = TextColumn("{task.fields[bad]} set aside")
    with Progress(*columns, bad, console=console) as progress:
        task = progress.add_task("shards", total=total, completed=before, bad=0)
        set_aside = 0

        def advance(done: ShardMetrics) -> None:
            nonlocal set_aside
            set_aside += done.bad
            progress.update(task, advance=1, bad=set_aside)

        yield advance


def _lines(console: Console, total: int, before: int) -> Advance:
    done = before

    def advance(metrics: ShardMetrics) -> None:
        nonlocal done
        done += 1
        console.print(
            f"shard {metrics.shard} done, {done} of {total}: {metrics.clips} clips,"
            f" {metrics.bad} set aside, {metrics.seconds:.1f} s by {metrics.worker}",
            markup=False,
            soft_wrap=True,
        )

    return advance
