"""Modules that no registry knows: from a class or a folder, traced on the meta device."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trnconv.errors import TrnconvError, UnsupportedError
from trnconv.pytorch import model_builder
from trnconv.pytorch.model_tracer import TraceSubject, trace_model
from trnconv.traces import ModelTrace

FORWARD = "forward"
_CLASS_KEY = "_class_name"  # of diffusers' configurations


def of_class(path: str, config: Mapping[str, Any]) -> torch.nn.Module:
    """`package.module:Class` with a configuration as its arguments, on the meta device."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise TrnconvError(f"--module {path}: write package.module:Class.")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise TrnconvError(
            f"--module {path}: {error}. It is imported as Python would from this folder."
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, torch.nn.Module)):
        raise TrnconvError(f"--module {path}: it is no torch.nn.Module.")
    return _built(path, cls, config)


def of_folder(folder: Path) -> torch.nn.Module:
    """The model of a folder that diffusers saved, by its config.json; no weights are read."""
    config = folder / "config.json"
    if not config.is_file():
        raise TrnconvError(
            f"--diffusers {folder}: there is no config.json. Name the folder that diffusers saved a"
            " model to; a pipeline has its autoencoder in the subfolder vae."
        )
    document = read_config(config)
    name = document.get(_CLASS_KEY)
    made = model_builder.class_of_diffusers(str(name))
    if made is None:
        raise UnsupportedError(
            f"--diffusers {folder}: its config.json names the class {name}, which the installed"
            " diffusers does not have. Install another version."
        )
    return _built(str(name), made, document)


def read_config(path: Path) -> dict[str, Any]:
    """Arguments of a class, from a JSON file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrnconvError(f"{path}: it cannot be read as JSON ({error}).") from error
    if not isinstance(document, dict):
        raise TrnconvError(f"{path}: a configuration is a JSON object of arguments.")
    return document


def _built(name: str, made: type[Any], config: Mapping[str, Any]) -> torch.nn.Module:
    try:
        with torch.device("meta"):
            model: Any = made.from_config(config) if _CLASS_KEY in config else made(**config)
    except Exception as error:  # the constructor is somebody's code: it may raise anything
        raise _failed(f"building {name}", error) from error
    built: torch.nn.Module = model
    return built.eval().requires_grad_(requires_grad=False)


def trace_own(
    name: str, model: torch.nn.Module, shape: tuple[int, ...], phase: str, dtype: str
) -> ModelTrace:
    """One call of a method (`forward`, `encode`, `decode`) with an input of a shape."""
    method = model if phase == FORWARD else getattr(model, phase, None)
    if method is None:
        raise UnsupportedError(f"{phase} of {name}: it has no method of that name.")
    kind = getattr(torch, dtype)
    torch.nn.Module.to(model, dtype=kind)
    given = torch.empty(shape, device="meta", dtype=kind)
    frames, height, width = (1, 1, 1, *shape[2:])[-3:]
    about = TraceSubject(name, phase, (frames, height, width), f"torch {torch.__version__}")
    try:
        return trace_model(model, lambda it: _called(it, phase, given), about)
    except TrnconvError:
        raise
    except Exception as error:  # as above
        by_x = "x".join(map(str, shape))
        raise _failed(f"{phase} of {name} with an input of {by_x}", error) from error


def _called(model: torch.nn.Module, phase: str, given: torch.Tensor) -> Any:
    return model(given) if phase == FORWARD else getattr(model, phase)(given)


def _failed(what: str, error: Exception) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: {type(error).__name__}: {error}. It runs without data, on torch's meta device,"
        " with one tensor as its input."
    )
