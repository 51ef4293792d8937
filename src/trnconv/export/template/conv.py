"""`conv3d` of exported problems: a recipe is found by the problem, filters are packed once."""

from __future__ import annotations

import importlib
import json
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .images import packed

Tensor = torch.Tensor
_RECIPES = Path(__file__).parent / "recipes"
_CLASS = "@"
_images: dict[tuple[int, str, str], tuple[Any, Any, tuple[Tensor, ...]]] = {}


def conv3d(  # noqa: PLR0913 (torch's arguments, and what was exported)
    x: Tensor | Sequence[Tensor],
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    dilation: Sequence[int] = (1, 1, 1),
    groups: int = 1,
    *,
    modes: Sequence[str] = ("zeros", "zeros", "zeros"),
    upsample: Sequence[int] = (1, 1, 1),
    skip: Sequence[int] = (0, 0, 0),
    activation: str = "identity",
    residual: Tensor | None = None,
    residual_at: str = "before",
) -> Tensor:
    """torch's conv3d of [N, C_in, D, H, W], or of several such tensors along the frames.

    `padding` has three numbers, or six: before and after each axis. The rest is what this problem
    was exported with: `upsample` repeats positions first and `skip` drops some at the front,
    `modes` are of padding, `residual` is added before or after the activation. A problem that was
    not exported is refused; `problems()` lists those that were.
    """
    pieces = [x] if isinstance(x, Tensor) else list(x)
    sides = list(padding) if len(padding) == 6 else [n for n in padding for _ in (0, 1)]
    problem = {
        "pieces": [list(piece.shape) for piece in pieces],
        "weight": list(weight.shape),
        "stride": list(stride),
        "before": sides[0::2],
        "after": sides[1::2],
        "dilation": list(dilation),
        "groups": groups,
        "modes": list(modes),
        "upsample": list(upsample),
        "skip": list(skip),
        "dtype": str(pieces[0].dtype).removeprefix("torch."),
        "activation": activation,
        "residual": "none" if residual is None else residual_at,
    }
    entry = entry_of(problem)
    images = _images_of(entry, weight, bias, pieces[0].device)
    added = [residual] if entry["takes_residual"] else []
    arguments = [piece.contiguous() for piece in pieces]
    return _launched(entry, [*arguments, *images, *added, recipe_of(entry["file"])])


def problems() -> list[dict[str, Any]]:
    """The exported problems: `names` whose they are, `problem` what a call has to be."""
    return list(_index()["entries"])


def entry_of(problem: dict[str, Any]) -> dict[str, Any]:
    """The recipe of a problem and its file; a ValueError if it was not exported."""
    for listed in _index()["entries"]:
        if listed["problem"] == problem:
            return {**_document(listed["file"]), "file": listed["file"], "module": listed["module"]}
    same_weight = [
        listed["problem"]
        for listed in _index()["entries"]
        if listed["problem"]["weight"] == problem["weight"]
    ]
    raise ValueError(
        f"{problem}: not among the {len(_index()['entries'])} exported problems. Of this weight"
        f" there are {same_weight or 'none'}. Export it: trnconv export SHAPES.json -o DIR."
    )


@cache
def recipe_of(file: str) -> Any:
    """The recipe of an entry, as its kernel takes it."""
    return _decoded(_document(file)["recipe"])


@cache
def _index() -> dict[str, Any]:
    index: dict[str, Any] = json.loads((_RECIPES / "index.json").read_text(encoding="utf-8"))
    return index


@cache
def _document(file: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((_RECIPES / file).read_text(encoding="utf-8"))
    return document


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str) and value[0].startswith(_CLASS):
        name = value[0].removeprefix(_CLASS)
        kind = getattr(_module(_index()["classes"][name]), name)
        return kind(*[_decoded(part) for part in value[1:]])
    return tuple(_decoded(part) for part in value)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__package__}.{name}")


def _launched(entry: dict[str, Any], arguments: list[Any]) -> Tensor:
    import nki  # noqa: PLC0415 (problems can be listed without it)

    kernel = _jitted(nki, entry["module"], entry["kernel"])
    launch = kernel if entry["cores"] == 1 else kernel[entry["cores"]]
    if arguments[0].device.type == "cpu":
        launch = nki.simulate(launch)
    y: Tensor = launch(*arguments)
    *_, depth, height, width = _out_sizes(entry["problem"])
    return y[:, :, :depth, :height, :width]


@cache
def _jitted(nki: Any, module: str, name: str) -> Any:
    """With the pass for tensors that are written again, where NKI has a switch for it."""
    made = nki.jit(getattr(_module(module), name))
    legalised = getattr(made, "enable_non_ssa_legalization", None)
    return made if legalised is None else legalised()


def _out_sizes(problem: dict[str, Any]) -> list[int]:
    frames = sum(piece[2] for piece in problem["pieces"])
    sizes = [frames, *problem["pieces"][0][3:]]
    return [
        (
            sizes[axis] * problem["upsample"][axis]
            - problem["skip"][axis]
            + problem["before"][axis]
            + problem["after"][axis]
            - problem["dilation"][axis] * (problem["weight"][2 + axis] - 1)
            - 1
        )
        // problem["stride"][axis]
        + 1
        for axis in range(3)
    ]


def _images_of(
    entry: dict[str, Any], weight: Tensor, bias: Tensor | None, device: torch.device
) -> tuple[Tensor, ...]:
    """Packed filters, made again when weight or bias were changed in place or are others."""
    key = (id(weight), entry["file"], str(device))
    biased = None if bias is None else (id(bias), bias._version)  # noqa: SLF001 (torch has no other)
    versions = (weight._version, biased)  # noqa: SLF001
    known = _images.get(key)
    if known is not None and known[0]() is weight and known[1] == versions:
        return known[2]
    images = packed(entry["arrays"], weight.detach().cpu(), bias)
    images = tuple(image.to(device) for image in images)
    _images[key] = (weakref.ref(weight, lambda _: _images.pop(key, None)), versions, images)
    return images
