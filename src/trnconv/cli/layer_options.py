"""One convolution by options: the same ones and the same errors for every command with a layer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.completion import accuracy_names, case_names, machine_names
from trnconv.errors import ShapeError, TrnconvError

if TYPE_CHECKING:
    from nkisim.machine import Machine
    from trnconv.geometry import Padding
    from trnconv.problem.conv_problem import ConvProblem, Shape

Command = Callable[..., None]
MachineName = Annotated[
    str,
    typer.Option(
        "--machine",
        help="trn1, trn2 or trn3, also with workarounds (trn2+fence); or a file of constants.",
        autocompletion=machine_names,
    ),
]
Cores = Annotated[
    int | None,
    typer.Option(
        "--cores", help="Cores per launch, 1 or 2. Default: 2 on trn2 and trn3, 1 on trn1."
    ),
]
Accuracy = Annotated[
    str,
    typer.Option(
        help="direct; or fast algorithms with an error of at most 1.05 (bf16) or 1.2 (fast) times"
        " that of a direct convolution.",
        autocompletion=accuracy_names,
    ),
]

_OPTIONS: dict[str, Any] = {
    "case": Annotated[
        str | None,
        typer.Argument(
            help="A named layer, such as wan_96_wide, or its key (see `trnconv layers`).",
            autocompletion=case_names,
        ),
    ],
    "channels": Annotated[
        str | None, typer.Option(help="Input:output channels, as in 96:192; 96 means 96:96.")
    ],
    "kernel": Annotated[str | None, typer.Option(help="Kernel size, as in 3x3x3, 3x3 or 5.")],
    "size": Annotated[str | None, typer.Option(help="Input size: frames x rows x columns.")],
    "stride": Annotated[str | None, typer.Option(help="One number, or one per axis, as in 1x2x2.")],
    "padding": Annotated[
        str | None,
        typer.Option(help="1, 0x1x1, 2:0x1x1 (before:after), same or valid. Default: none."),
    ],
    "dilation": Annotated[str | None, typer.Option(help="One number, or one per axis.")],
    "padding_mode": Annotated[
        str | None, typer.Option(help="zeros (default), replicate, reflect or circular.")
    ],
    "transposed": Annotated[
        bool | None,
        typer.Option("--transposed", help="A transposed convolution, as torch's conv_transpose."),
    ],
    "output_padding": Annotated[
        str | None,
        typer.Option(
            help="Output padding of a transposed convolution: one number, or one per axis."
        ),
    ],
    "groups": Annotated[int | None, typer.Option(help="Number of groups. Default: 1.")],
    "batch": Annotated[int | None, typer.Option(help="Batch size. Default: 1.")],
    "dtype": Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32. Default: the layer's.")
    ],
}
_NEEDED = ("channels", "kernel", "size")
_DEFAULT_DTYPE = "bfloat16"


@dataclass(frozen=True)
class LayerOptions:
    """What a user wrote about a layer, not looked at yet; None where nothing was written."""

    case: str | None = None
    channels: str | None = None
    kernel: str | None = None
    size: str | None = None
    stride: str | None = None
    padding: str | None = None
    dilation: str | None = None
    padding_mode: str | None = None
    transposed: bool | None = None
    output_padding: str | None = None
    groups: int | None = None
    batch: int | None = None
    dtype: str | None = None

    def given(self, *, but: tuple[str, ...] = ()) -> list[str]:
        """The options that were written, as a user writes them; `but` are not asked about."""
        named = [name for name in _OPTIONS if name not in but and getattr(self, name) is not None]
        return [name if name == "case" else f"--{name.replace('_', '-')}" for name in named]


@dataclass(frozen=True)
class LayerRequest:
    """A layer that is understood."""

    name: str
    note: str  # where it comes from; empty if the options describe it
    shape: Shape
    dtype: str

    def in_words(self) -> str:
        """Name, channels, taps, input and where it comes from, in a line."""
        from trnconv.geometry import TransposedShape

        shape = self.shape
        size, taps = ("x".join(map(str, numbers)) for numbers in (shape.size, shape.kernel))
        images = "" if shape.batch == 1 else f"{shape.batch} x "
        channels = f"{shape.c_in} to {shape.c_out} channels, {taps}, input {images}{size}"
        if isinstance(shape, TransposedShape):
            channels += f", transposed to {'x'.join(map(str, shape.out))}"
        return f"{self.name}: {channels}" + (f". {self.note}." if self.note else ".")


def with_layer(command: Command) -> Command:
    """A command with the options of a layer; its first parameter, `layer`, is a LayerOptions."""
    own_parameters = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    layer = [_parameter(name, asked) for name, asked in _OPTIONS.items()]
    every = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*layer, *own_parameters)
    ]

    @wraps(command)
    def taking_options(**values: Any) -> None:
        written = LayerOptions(**{name: values.pop(name) for name in _OPTIONS})
        command(written, **values)

    taking_options.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    taking_options.__dict__["__signature__"] = inspect.Signature(every)
    return taking_options


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def asked_layer(options: LayerOptions) -> LayerRequest:
    """The layer that the options describe; a TrnconvError says what is missing or wrong."""
    from trnconv.cases import find

    dtype = asked_dtype(options.dtype)
    if options.case is not None:
        others = options.given(but=("case", "dtype"))
        if others:
            raise TrnconvError(
                f"layer {options.case} and {', '.join(others)}: a named layer has its own"
                " shape. Give a name or these options, not both."
            )
        case = find(options.case)
        return LayerRequest(case.name, case.note, case.shape, dtype or case.dtype)
    missing = [f"--{name}" for name in _NEEDED if getattr(options, name) is None]
    if missing:
        raise TrnconvError(
            f"a layer without {', '.join(missing)}: name one, such as wan_96_wide, or give"
            " --channels 96:96 --kernel 3x3x3 --size 6x48x1280 --padding 0x1x1."
        )
    shape = _shape(options)
    return LayerRequest("layer", "", shape, dtype or _DEFAULT_DTYPE)


def _shape(options: LayerOptions) -> Shape:
    from trnconv.geometry import ZEROS, conv_shape, transposed_shape

    c_in, c_out = _channels(options.channels or "")
    kernel = _numbers("--kernel", options.kernel or "")
    size = _numbers("--size", options.size or "")
    if len(kernel) != len(size):
        raise ShapeError(
            f"--kernel {options.kernel} and --size {options.size}: they have"
            f" {len(kernel)} and {len(size)} axes. Both need the same number of axes."
        )
    batch = 1 if options.batch is None else options.batch
    groups = 1 if options.groups is None else options.groups
    if groups < 1 or c_in % groups or c_out % groups:
        raise ShapeError(
            f"--groups {groups} of {c_in} input and {c_out} output channels: both must be"
            " multiples of the number of groups."
        )
    steps: dict[str, Any] = {
        "stride": _numbers("--stride", options.stride or "1"),
        "dilation": _numbers("--dilation", options.dilation or "1"),
        "groups": groups,
    }
    x = (batch, c_in, *size)
    if options.transposed:
        return transposed_shape(x, (c_in, c_out // groups, *kernel), **steps, **_crop(options))
    if options.output_padding is not None:
        raise ShapeError(
            f"--output-padding {options.output_padding} without --transposed: only transposed"
            " convolutions have output padding."
        )
    mode = options.padding_mode or ZEROS
    padding = _padding(options.padding or "0")
    w = (c_out, c_in // groups, *kernel)
    return conv_shape(x, w, **steps, padding=padding, padding_mode=mode)


def _crop(options: LayerOptions) -> dict[str, Any]:
    """The padding of a transposed convolution: what is cropped, and what is added."""
    if options.padding_mode is not None:
        raise ShapeError(
            f"--padding-mode {options.padding_mode} with --transposed: the padding of a"
            " transposed convolution has no mode."
        )
    return {
        "padding": _numbers("--padding", options.padding or "0"),
        "output_padding": _numbers("--output-padding", options.output_padding or "0"),
    }


def _channels(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if found is None:
        raise ShapeError(f"--channels {text}: write input:output channels, such as 96:192.")
    return int(found[1]), int(found[2] or found[1])


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """1 to 3 numbers with x between them."""
    if re.fullmatch(r"\d+(x\d+){0,2}", text) is None:
        raise ShapeError(f"{option} {text}: write 1 to 3 numbers with x between, such as 3x3x3.")
    return tuple(int(part) for part in text.split("x"))


def _padding(text: str) -> Padding:
    if text in ("same", "valid"):
        return text
    if re.fullmatch(r"\d+(:\d+)?(x\d+(:\d+)?){0,2}", text) is None:
        raise ShapeError(
            f"--padding {text}: write a number, one per axis (0x1x1), before:after (2:0x1x1), same"
            " or valid."
        )
    sides = [[int(side) for side in part.split(":")] for part in text.split("x")]
    return [(side[0], side[-1]) for side in sides]


def asked_dtype(text: str | None) -> str | None:
    """A type that kernels take; None if none was named."""
    from trnconv.problem.epilogue import ITEM_BYTES

    if text is not None and text not in ITEM_BYTES:
        raise TrnconvError(f"--dtype {text}: the kernels take {', '.join(ITEM_BYTES)}.")
    return text


def asked_machine(name: str) -> Machine:
    """The machine of this name; a TrnconvError lists those there are."""
    from nkisim import NkiValidationError
    from nkisim.machine import MACHINES
    from nkisim.measured_machine import named_machine

    try:
        return named_machine(name)
    except NkiValidationError as error:
        raise TrnconvError(
            f"--machine {name}: use {', '.join(MACHINES)}, optionally with workarounds"
            f" (trn2+fence), or a file written by `trnconv bringup --stage 4`. {error.args[0]}"
        ) from error


def asked_problem(layer: LayerRequest, machine: str, accuracy: str) -> ConvProblem:
    """A layer on a machine, for the planner."""
    from trnconv.problem.conv_problem import ConvProblem
    from trnconv.problem.policy import Policy

    return ConvProblem(layer.shape, asked_machine(machine), layer.dtype, policy=Policy(accuracy))
