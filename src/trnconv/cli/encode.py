"""`trnconv encode`: a corpus of videos into latents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.output import Json, amount, console, print_json, printable, table

if TYPE_CHECKING:
    from rich.console import Console

    from trnconv.corpus import CorpusRun, Job
    from trnconv.corpus.jobs.metrics import ShardMetrics

_SHOWN = 100  # clips that were set aside; the manifest has all


def encode(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Videos: files, folders, glob patterns or list files; local, s3:// or gs://."
        ),
    ],
    out: Annotated[
        str, typer.Option(help="Output folder for latents, local or in an object store.")
    ],
    model: Annotated[str, typer.Option(help="A model by name (see `trnconv models`).")],
    size: Annotated[list[str], typer.Option(help="Height x width of a bucket; may be repeated.")],
    frames: Annotated[list[int], typer.Option(help="Frames of a bucket; may be repeated.")],
    weights: Annotated[
        str | None, typer.Option(help="Model folder written by diffusers' save_pretrained.")
    ] = None,
    subfolder: Annotated[str | None, typer.Option(help="Subfolder of --weights, e.g. vae.")] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Use random weights, for trials.")
    ] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="Use the registry's reduced model, for trials.")
    ] = False,
    fps: Annotated[
        float | None, typer.Option(help="Frames per second to encode. Default: all frames.")
    ] = None,
    fit: Annotated[
        str, typer.Option(help="cover (scale and crop), crop (crop only) or exact.")
    ] = "cover",
    enlarge: Annotated[
        bool,
        typer.Option(
            "--enlarge", help="Also accept videos smaller than the bucket, and scale them up."
        ),
    ] = False,
    backend: Annotated[str, typer.Option(help="torch, nkisim or neuron.")] = "torch",
    device: Annotated[str, typer.Option(help="With --backend neuron: xla or neuron.")] = "xla",
    dtype: Annotated[
        str, typer.Option(help="auto (by --latent-error), float32, bfloat16 or float16.")
    ] = "auto",
    latent_error: Annotated[
        float | None,
        typer.Option(help="Largest RMS error, relative to float32 latents. auto: 0.0039."),
    ] = None,
    output: Annotated[str, typer.Option(help="mean+logvar, or mode.")] = "mean+logvar",
    engine: Annotated[str, typer.Option(help="local, torchrun or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="With --engine ray: number of workers.")] = 1,
    neuron_cores: Annotated[
        int, typer.Option(help="With --engine ray: Neuron cores per worker.")
    ] = 0,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Address of a Ray cluster; local starts one. Default: RAY_ADDRESS, or local."
        ),
    ] = None,
    clips_per_shard: Annotated[int, typer.Option(help="Clips per output file.")] = 64,
    windows: Annotated[int, typer.Option(help="Maximum number of clips taken from one video.")] = 1,
    readers: Annotated[int, typer.Option(help="Clips that a worker decodes ahead.")] = 1,
    most_file_bytes: Annotated[int, typer.Option(help="Largest video file.")] = 2 << 30,
    most_frame_pixels: Annotated[int, typer.Option(help="Largest frame of a video.")] = 1 << 26,
    most_decode_s: Annotated[
        float, typer.Option(help="Wall-clock limit of one decoding attempt.")
    ] = 300,
    most_decode_bytes: Annotated[int, typer.Option(help="Memory limit of a decoder process.")] = 8
    << 30,
    most_deaths: Annotated[
        int, typer.Option(help="Crashes of a decoder or worker after which a clip is set aside.")
    ] = 3,
    most_unread: Annotated[
        float,
        typer.Option(help="Stop if a larger share of the last 50 clips cannot be read."),
    ] = 0.5,
    retry_set_aside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REASON",
            help="Encode clips again whose reason begins so, e.g. missing; all for any."
            " May be repeated.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="First compare all files with their checksums; repair what is damaged."
        ),
    ] = False,
    accept_version: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Go on with another version of trnconv, torch, diffusers, av, ffmpeg or neuron."
            " May be repeated.",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="torch threads per worker, on a CPU.")] = 1,
    json: Json = False,
) -> None:
    """Encode videos into latents; an interrupted run resumes where it stopped."""
    from trnconv.corpus import (
        EncoderSettings,
        Engine,
        Job,
        Limits,
        Picture,
        RunTerms,
        buckets_for,
        start,
    )
    from trnconv.models import find

    _require_one(weights, random_weights)
    settings = EncoderSettings(
        model=model,
        weights=weights,
        subfolder=subfolder,
        reduced=reduced,
        backend=backend,
        device=device,
        dtype=dtype,
        latent_error=latent_error,
        output=output,
        threads=threads,
    )
    pictures = [Picture.parse(text) for text in size]
    buckets = buckets_for(find(model), pictures, frames, fit=fit, enlarge=enlarge)
    limits = Limits(
        file_bytes=most_file_bytes,
        frame_pixels=most_frame_pixels,
        decode_s=most_decode_s,
        memory_bytes=most_decode_bytes,
        deaths=most_deaths,
    )
    job = Job(
        out=out,
        encoder=settings,
        buckets=buckets,
        fps=fps,
        windows=windows,
        limits=limits,
        readers=readers,
        terms=RunTerms(
            most_unread=most_unread,
            retry=tuple(retry_set_aside or ()),
            verify=verify,
            accept=tuple(accept_version or ()),
        ),
    )
    chosen = Engine(engine, workers=workers, neuron_cores=neuron_cores, address=ray_address)
    run = start(job, sources, chosen, clips_per_shard=clips_per_shard)
    metrics = _done(run)
    manifest = run.finish()
    summary = _summary(run, metrics, manifest)
    if json:
        print_json(summary)
    else:
        _show(job, summary)


def _require_one(weights: str | None, random_weights: bool) -> None:
    """Of the two ways to have weights."""
    from trnconv.errors import TrnconvError

    if weights is None and not random_weights:
        raise TrnconvError(
            "encode without weights: name the folder that diffusers saved the autoencoder to with"
            " --weights, or try things out with --random-weights."
        )
    if weights is not None and random_weights:
        raise TrnconvError("--weights and --random-weights: give one of them, not both.")


def _done(run: CorpusRun) -> list[ShardMetrics]:
    """Do what is left, and show how far it is, on stderr, with whatever engines have to say."""
    import sys
    from contextlib import redirect_stdout

    from trnconv.cli.progress import shard_progress

    metrics = []
    with shard_progress(run) as advance, redirect_stdout(sys.stderr):
        for shard in run:
            metrics.append(shard)
            advance(shard)
    return metrics


def _summary(
    run: CorpusRun, metrics: list[ShardMetrics], manifest: dict[str, Any] | None
) -> dict[str, Any]:
    from dataclasses import asdict

    from trnconv.corpus.jobs.metrics import by_worker

    return {
        "out": run.job.out,
        "clips": run.plan.clips,
        "shards": run.plan.shards,
        "shards_done_now": len(metrics),
        "precision": asdict(run.job.encoder.precision),
        "complete": manifest is not None,
        "encoded": manifest["clips"] if manifest else None,
        "windows": manifest["windows"] if manifest else None,
        "bytes": manifest["bytes"] if manifest else None,
        "set_aside": manifest["set_aside"] if manifest else None,
        "set_aside_by": manifest["set_aside_by"] if manifest else None,
        "bad": run.bad(_SHOWN) if manifest else None,
        "verified": asdict(run.verified) if run.job.terms.verify else None,
        "changed": run.changed.count,
        "changed_some": list(run.changed.some),
        "workers": [asdict(worker) for worker in by_worker(metrics)],
    }


def _show(job: Job, summary: dict[str, Any]) -> None:
    from trnconv.corpus.latents.precision import describe_error
    from trnconv.corpus.videos.reasons import LATER

    screen = console()
    kept = summary["precision"]
    screen.print(
        f"Model in {kept['model_dtype']}, latents in {kept['latent_dtype']}: off float32's"
        f" {describe_error(kept['error_at_most'])}, by random weights."
    )
    screen.print(
        f"{summary['shards_done_now']} shards encoded here and now, of {summary['shards']} with"
        f" {summary['clips']} clips."
    )
    if summary["verified"]:
        _show_verified(screen, summary["verified"])
    if summary["workers"]:
        screen.print(_by_worker(summary["workers"]))
    if summary["changed"]:
        some = printable(", ".join(summary["changed_some"]))
        screen.print(
            f"{summary['changed']} videos were replaced since they were planned (e.g. {some}):"
            " their latents are those of the old ones.",
            markup=False,
        )
    for clip in summary["bad"]:
        screen.print(printable(f"set aside: {clip['url']}: {clip['reason']}"), markup=False)
    if summary["set_aside"] > len(summary["bad"]):
        screen.print(f"... and {summary['set_aside'] - len(summary['bad'])} more: see the manifest")
    written = f"{amount(summary['bytes'], 'B')} of latents"
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary["set_aside_by"].items())
    screen.print(
        f"{summary['encoded']} clips, {written}, {summary['set_aside']} set aside"
        f"{f' ({kinds})' if kinds else ''}: {printable(job.out)}/manifest.json",
        markup=False,
    )
    later = sum(summary["set_aside_by"].get(kind, 0) for kind in LATER)
    if later:
        screen.print(f"{later} of them are tried again when the same command is run again.")


def _show_verified(screen: Console, verified: dict[str, Any]) -> None:
    screen.print(
        f"{verified['files']} files verified, {amount(verified['file_bytes'], 'B')};"
        f" {len(verified['damaged'])} were damaged, and were made again."
    )
    for name in verified["damaged"]:
        screen.print(printable(f"damaged: {name}"), markup=False)


def _by_worker(workers: list[dict[str, Any]]) -> Any:
    rates = ("shards", "clips", "clips/s", "Mpixel/s", "CPU")
    shown = table("", "worker", *rates, "waiting", "encoding", "writing", "shapes")
    for worker in workers:
        shares = [f"{worker[name]:.0%}" for name in ("cpu", "waiting", "encoding", "writing")]
        speed = [f"{worker['clips_per_s']:.3g}", f"{worker['megapixels_per_s']:.3g}"]
        counts = [str(worker["shards"]), str(worker["clips"])]
        shown.add_row(worker["worker"], *counts, *speed, *shares, str(worker["shapes"]))
    return shown
