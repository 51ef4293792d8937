"""`trnconv capacity`: how many instances a corpus takes, and what breaks first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.output import Json, amount, console, print_json, table

if TYPE_CHECKING:
    from nkisim.machine import Machine
    from trnconv.corpus.fleet.capacity import Assumptions, Capacity, Demand, ModelledClip
    from trnconv.corpus.fleet.decode_service import Serving
    from trnconv.corpus.fleet.instances import Instance
    from trnconv.models import ModelEntry, Size

_LEFT_OUT = (
    "Norms, attention, launches, and waits for data are not modelled: `reached` stands for them.",
    "Cores are physical ones; what launches slow each other down by is in `reached`, too.",
    "Compiling is not counted: once a bucket, then from the compiler's cache.",
)


def capacity(
    clips: Annotated[float, typer.Option(help="Number of clips, e.g. 1e6.")],
    seconds: Annotated[float, typer.Option(help="Length of a clip in seconds.")],
    size: Annotated[str, typer.Option(help="Height x width, e.g. 720x1280.")],
    model: Annotated[str, typer.Option(help="A model by name (see `trnconv models`).")] = "wan2.1",
    fps: Annotated[float, typer.Option(help="Frames per second that are encoded.")] = 16,
    days: Annotated[float, typer.Option(help="Days available.")] = 1,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Plan decodes for serving instead: latency, throughput, cost per video.",
        ),
    ] = False,
    instance: Annotated[str, typer.Option(help="Instance type.")] = "trn2.48xlarge",
    reached: Annotated[
        float, typer.Option(help="Share of the modelled speed that is assumed to be reached.")
    ] = 0.5,
    usable: Annotated[float, typer.Option(help="Usable share of vCPUs and network.")] = 0.8,
    source_fps: Annotated[float, typer.Option(help="Frames per second of the source files.")] = 30,
    source_area: Annotated[
        float, typer.Option(help="Pixels of a source frame relative to the clip's.")
    ] = 1,
    source_mbit_s: Annotated[float, typer.Option(help="Bit rate of the source files, Mbit/s.")] = 5,
    decode_mpixel_s: Annotated[
        float, typer.Option(help="Megapixels per second that a vCPU decodes.")
    ] = 60,
    object_store_gbit_s: Annotated[
        float, typer.Option(help="Object store bandwidth per instance, Gbit/s.")
    ] = 50,
    cores_per_clip: Annotated[
        int | None,
        typer.Option(
            help="Cores that share a clip, assuming ideal scaling. Default: one launch's."
        ),
    ] = None,
    clips_in_flight: Annotated[float, typer.Option(help="Decoded clips held per core.")] = 3,
    process_gb: Annotated[
        float, typer.Option(help="Host memory per worker, including the model, GB.")
    ] = 6,
    ray_store_gb: Annotated[
        float,
        typer.Option(help="Ray's object store per instance, GB; 200 with `encode --engine ray`."),
    ] = 0,
    spare: Annotated[float, typer.Option(help="Spare instances for failures, as a share.")] = 0,
    latents: Annotated[
        int, typer.Option(help="Tensors stored per clip: 2 (mean and logvar) or 1 (mode).")
    ] = 2,
    latent_bytes: Annotated[
        int, typer.Option(help="Bytes per latent value: 2 (bf16) or 4 (fp32).")
    ] = 2,
    dollars_per_hour: Annotated[
        float | None, typer.Option(help="Price of an instance per hour. Default: no cost is given.")
    ] = None,
    json: Json = False,
) -> None:
    """Estimate instances, storage and bottlenecks for encoding a corpus."""
    from nkisim.machine import find_machine
    from trnconv.corpus.fleet.capacity import Assumptions, Demand
    from trnconv.corpus.fleet.capacity import capacity as work_out
    from trnconv.corpus.fleet.decode_service import serving
    from trnconv.corpus.fleet.instances import find_instance
    from trnconv.models import find

    entry, where = find(model), find_instance(instance)
    machine = find_machine(where.machine)
    per_clip = machine.launch_cores if cores_per_clip is None else cores_per_clip
    assumed = Assumptions(
        reached=reached,
        usable=usable,
        source_fps=source_fps,
        source_area=source_area,
        source_mbit_s=source_mbit_s,
        decode_mpixel_s=decode_mpixel_s,
        object_store_gbit_s=object_store_gbit_s,
        cores_per_clip=per_clip,
        clips_in_flight=clips_in_flight,
        process_gb=process_gb,
        ray_store_gb=ray_store_gb,
        spare=spare,
        latents=latents,
        latent_bytes=latent_bytes,
    )
    demand = Demand(clips=clips, seconds=seconds, days=days)
    cores = min(per_clip, machine.launch_cores)
    phase = "decode" if serve else "encode"
    clip = _modelled(entry, _clip_size(entry, size, seconds, fps), machine, cores, phase)
    if serve:
        found_serving = serving(clip, where, assumed, dollars_per_hour)
        _show_serving(found_serving, clip, where, json=json)
        return
    sizing = work_out(demand, clip, where, assumed)
    answer = _answer(sizing, clip, where)
    answer["asked"] = {**asdict(demand), "model": model, "fps": fps}
    answer["assumptions"] = asdict(assumed)
    if dollars_per_hour is not None:
        answer["dollars"] = sizing.instances * dollars_per_hour * 24 * days
    if json:
        print_json(answer)
    else:
        _show(answer, demand, assumed)


def _clip_size(entry: ModelEntry, size: str, seconds: float, fps: float) -> Size:
    """Frames of both ends of the clip, as many as the model takes: 5 s at 16 a second are 81."""
    from trnconv.corpus.videos.buckets import Picture, frames_within
    from trnconv.models import Size

    picture = Picture.parse(size)
    frames = frames_within(entry, round(seconds * fps) + 1)
    return Size(size, frames, picture.height, picture.width)


def _modelled(
    entry: ModelEntry, size: Size, machine: Machine, cores: int, phase: str
) -> ModelledClip:
    """One encoding or decoding, priced on the meta device, in the default reading."""
    from trnconv.corpus.fleet.capacity import ModelledClip
    from trnconv.corpus.storage.needs import needed_for
    from trnconv.models import latent_size

    latent = latent_size(entry, size)
    with needed_for("modelling an autoencoder", "diffusers"):
        from trnconv.pytorch.estimate import estimate, rewrites_on, run_entry_on_meta

    run = run_entry_on_meta(entry, size, phase, rewrites=rewrites_on(machine))
    priced = estimate(run, machine, cores=cores)
    timing = machine.timing
    hbm = min(timing.dma_engines * timing.dma_bytes_per_ns, timing.hbm_bytes_per_ns / 2)
    return ModelledClip(
        size=size,
        latent=latent,
        convolution_s=priced.seconds,
        copied_s=priced.copied_bytes / (cores * hbm) / 1e9,
        peak_bytes=run.peak_bytes,
        weight_bytes=run.weight_bytes,
        cores=cores,
    )


def _show_serving(capacity: Serving, clip: ModelledClip, where: Instance, *, json: bool) -> None:
    """One instance that decodes."""
    from nkisim.machine import CONSTANTS_VERSION

    if json:
        print_json({"label": "modelled", "instance": asdict(where), **asdict(capacity)})
        return
    screen = console()
    screen.print(
        f"{where.name} decodes {clip.size.name}, {clip.size.frames} frames: {capacity.at_once}"
        f" videos at once, {capacity.latency_s:.2f} s each,"
        f" {capacity.videos_per_hour:,.0f} an hour."
    )
    if capacity.dollars_per_video is not None:
        screen.print(f"A video costs {capacity.dollars_per_video:.5f} dollars, at the price given.")
    screen.print(
        f"Modelled: {where.machine}, constants {CONSTANTS_VERSION}, default reading; nothing was"
        " measured."
    )
    screen.print("Queues, writing of video files and the network are not in it.")


def _answer(capacity: Capacity, clip: ModelledClip, where: Instance) -> dict[str, Any]:
    rows = [*capacity.resources, *capacity.memory]
    return {
        "label": "modelled",
        "instances": capacity.instances,
        "instance": asdict(where),
        "breaks_first": capacity.resources[0].name,
        "clip": {**asdict(clip), "core_s": clip.core_s},
        "clips_per_s": capacity.clips_per_s,
        "clips_per_s_most": capacity.clips_per_s_most,
        "read_bytes": capacity.read_bytes,
        "written_bytes": capacity.written_bytes,
        "pixel_bytes": capacity.pixel_bytes,
        "resources": [{**asdict(row), "used": capacity.used(row)} for row in rows],
    }


def _show(answer: dict[str, Any], demand: Demand, assumed: Assumptions) -> None:
    from nkisim.machine import CONSTANTS_VERSION
    from trnconv.problem.cores import describe_cores

    size, screen = answer["clip"]["size"], console()
    time = f"{demand.days:g} {'day' if demand.days == 1 else 'days'}"
    screen.print(
        f"{amount(demand.clips)} clips of {demand.seconds:g} s, {size['name']}, {size['frames']}"
        f" frames, {answer['asked']['model']} encoder, in {time}:"
        f" {answer['instances']} x {answer['instance']['name']}."
    )
    screen.print(
        f"Modelled: {answer['instance']['machine']}, constants {CONSTANTS_VERSION}, default"
        f" reading, launches of {describe_cores(answer['clip']['cores'])}; nothing was measured."
    )
    screen.print()
    for line in _lines(answer):
        screen.print(line)
    screen.print()
    screen.print(_used(answer))
    screen.print()
    screen.print("Assumed, each an option of this command:")
    for name, value in asdict(assumed).items():
        screen.print(f"  --{name.replace('_', '-'):<22} {value:g}")
    for left_out in _LEFT_OUT:
        screen.print(left_out)


def _lines(answer: dict[str, Any]) -> list[str]:
    clip, most = answer["clip"], answer["clips_per_s_most"]
    first = next(
        resource for resource in answer["resources"] if resource["name"] == answer["breaks_first"]
    )
    parts = f"{clip['convolution_s']:.2f} convolutions, {clip['copied_s']:.2f} copies"
    parts += "" if clip["cores"] == 1 else f", on each of {clip['cores']}"
    growth = f"{first['used']:.0%} used: at {most / answer['clips_per_s']:.2f} times the clips"
    lines = [
        f"a clip        {clip['core_s']:.2f} s of a core: {parts}",
        f"clips         {answer['clips_per_s']:.3g} a second asked for, {most:.3g} possible",
        f"reads         {amount(answer['read_bytes'], 'B')} of videos",
        f"writes        {amount(answer['written_bytes'], 'B')} of latents",
        f"to devices    {amount(answer['pixel_bytes'], 'B')} of pixels",
        f"breaks first  {first['name']}, {growth}",
    ]
    if "dollars" in answer:
        lines.append(f"costs         {answer['dollars']:,.0f} dollars, at the price given")
    return lines


def _used(answer: dict[str, Any]) -> Any:
    shown = table("", "resource", "needed", "of one instance", "used")
    for resource in answer["resources"]:
        needed, supply = (
            amount(resource["demand"], resource["unit"]),
            amount(resource["supply"], resource["unit"]),
        )
        shown.add_row(resource["name"], needed, supply, f"{resource['used']:.0%}")
    return shown
