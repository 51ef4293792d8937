"""A module of the user's by options: a class and its arguments, or a folder of diffusers."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trnconv.cli.layer_options import LayerOptions, asked_dtype
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.traces import ModelTrace

_DEFAULT_DTYPE = "bfloat16"


@dataclass(frozen=True)
class OwnOptions:
    """What was written about a module, not looked at yet."""

    module: str | None
    config: Path | None
    diffusers: Path | None
    input_shape: str | None


@dataclass(frozen=True)
class OwnModel:
    """A module that is understood, and what it is called with."""

    module: str  # package.module:Class; empty for a folder
    config: Path | None
    folder: Path | None
    shape: tuple[int, ...]
    dtype: str

    @property
    def name(self) -> str:
        """How the user calls it."""
        return self.module or str(self.folder)

    def trace(self, phase: str | None) -> ModelTrace:
        """One call on the meta device: of `forward`, unless a phase names a method."""
        from trnconv.corpus.storage.needs import needed_for

        with needed_for("planning a module", "diffusers" if self.folder else "torch"):
            from trnconv.pytorch.own_module import (
                FORWARD,
                of_class,
                of_folder,
                read_config,
                trace_own,
            )
        if self.folder is not None:
            built = of_folder(self.folder)
        else:
            sys.path.insert(0, str(Path.cwd()))  # as for `python -m`
            built = of_class(self.module, read_config(self.config) if self.config else {})
        return trace_own(self.name, built, self.shape, phase or FORWARD, self.dtype)


def asked_own(options: OwnOptions, layer: LayerOptions, model: str | None) -> OwnModel | None:
    """The module that the options describe; None if they describe none."""
    if options.module is None and options.diffusers is None:
        if options.config is not None or options.input_shape is not None:
            raise TrnconvError("--config and --input need --module or --diffusers.")
        return None
    others = layer.given(but=("dtype",)) + (["--model"] if model else [])
    if options.module is not None and options.diffusers is not None:
        others.append("--diffusers")
    if others:
        raise TrnconvError(
            f"a module and {', '.join(others)}: its shape is given by --input alone."
        )
    if options.diffusers is not None and options.config is not None:
        raise TrnconvError("--config with --diffusers: the folder contains its configuration.")
    return OwnModel(
        options.module or "",
        options.config,
        options.diffusers,
        _shape(options.input_shape),
        asked_dtype(layer.dtype) or _DEFAULT_DTYPE,
    )


def _shape(text: str | None) -> tuple[int, ...]:
    if text is None or re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2,4}", text) is None:
        raise TrnconvError(
            f"--input {text or 'is missing'}: write batch x channels x sizes, such as"
            " 1x3x17x256x256."
        )
    return tuple(int(part) for part in text.split("x"))
