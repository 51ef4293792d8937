"""Two hundred named problems, whose plans `tests/golden/plans.txt` pins.

Layers of models, borders of what plans handle, and every way of asking: machines, accuracies, input
in pieces, residuals, fixed orders of sums, two cores, transposes and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnconv.cases import BENCHMARK, EDGE
from trnconv.geometry import ConvShape, TransposedShape, conv_shape, input_gradient_shape

CONVOLUTION, DEPTHWISE, WEIGHT_GRADIENT = "convolution", "depthwise", "weight gradient"
_TARGETS = ("trn2", "trn1", "trn3")
_LAYERS = {case.name: case.shape for case in BENCHMARK}
_PIECES = {
    "wan_96_wide": (2, 4),
    "wan_192_wide": (2, 4),
    "wan_384_720p_4_frames": (1, 1, 4),
    "wan_384_720p_1_frame": (2, 1),
    "cogvideox_128_wide": (2, 8),
    "hunyuan_128_wide": (1, 5),
    "hunyuan_512": (2, 3),
    "wan_to_rgb": (2, 4),
}


@dataclass(frozen=True)
class PinnedProblem:
    """What is asked of the planner."""

    name: str
    shape: ConvShape | TransposedShape
    machine: str = "trn2"
    dtype: str = "bfloat16"
    accuracy: str = "bf16"
    pieces: tuple[int, ...] = ()
    residual: bool = False
    reproducible: bool = False
    exact: bool = False
    cores: int = 1
    asks: str = CONVOLUTION

    @property
    def title(self) -> str:
        """All that was asked, in one line."""
        asked = [self.name, self.machine, self.dtype, self.accuracy]
        asked += [f"pieces {'+'.join(map(str, self.pieces))}"] if self.pieces else []
        for word in ("residual", "reproducible", "exact"):
            asked += [word] if getattr(self, word) else []
        asked += ["two cores"] if self.cores == 2 else []
        asked += [self.asks] if self.asks != CONVOLUTION else []
        return ", ".join(asked)


def pinned_problems() -> tuple[PinnedProblem, ...]:
    """All of them, in a fixed order."""
    return (
        *_cases(),
        *_layers_asked_in_every_way(),
        *_transposed(),
        *_upsampled_and_padded(),
        *_groups(),
        *_weight_gradients(),
    )


def _cases() -> list[PinnedProblem]:
    """Every named case once, on one of three machines."""
    return [
        PinnedProblem(case.name, case.shape, _TARGETS[number % 3], case.dtype)
        for number, case in enumerate((*BENCHMARK, *EDGE))
    ]


def _layers_asked_in_every_way() -> list[PinnedProblem]:
    first = [PinnedProblem(name, shape) for name, shape in _LAYERS.items()]
    some = [one for one in first if one.name in _PIECES]
    wide = [one for one in some if one.name != "wan_to_rgb"]
    return [
        *(replace(one, accuracy="fast") for one in first),
        *(replace(one, accuracy="fast", machine="trn3") for one in wide),
        *(replace(one, accuracy="direct") for one in wide),
        *(replace(one, pieces=_PIECES[one.name]) for one in some),
        *(replace(one, pieces=_PIECES[one.name], accuracy="fast") for one in wide[:3]),
        *(replace(one, residual=True) for one in wide),
        *(replace(one, residual=True, accuracy="fast") for one in wide[:4]),
        *(replace(one, reproducible=True) for one in some),
        *(replace(one, exact=True) for one in some[:3]),
        *(replace(one, cores=2) for one in some),
        *(replace(one, dtype="float32", accuracy="half") for one in wide[:2]),
    ]


def _transposed() -> list[PinnedProblem]:
    strided = conv_shape((1, 128, 5, 30, 40), (96, 128, 3, 4, 4), stride=(1, 2, 2), padding=1)
    dense = conv_shape((1, 96, 4, 24, 40), (96, 96, 3, 3, 3), padding=1)
    return [
        PinnedProblem("input_gradient_strided", input_gradient_shape(strided)),
        PinnedProblem("input_gradient_dense", input_gradient_shape(dense), "trn3"),
        PinnedProblem("input_gradient_dense", input_gradient_shape(dense), "trn1", "float32"),
    ]


def _upsampled_and_padded() -> list[PinnedProblem]:
    doubled = conv_shape((1, 384, 1, 45, 80), (192, 384, 1, 3, 3), padding=(0, 1, 1), upsample=2)
    doubled = replace(doubled, upsample=(1, 2, 2))
    video = conv_shape(
        (1, 64, 5, 20, 24),
        (64, 64, 3, 3, 3),
        padding=((2, 0), 1, 1),
        padding_mode="replicate",
        upsample=2,
        skip=(1, 0, 0),
    )
    reflected = conv_shape((1, 96, 4, 40, 60), (96, 96, 3, 3, 3), padding=1, padding_mode="reflect")
    around = replace(reflected, modes=("replicate", "replicate", "replicate"))
    whole = conv_shape(
        (1, 128, 6, 60, 640),
        (128, 128, 3, 3, 3),
        padding=((2, 0), 1, 1),
        padding_mode="replicate",
    )
    return [
        PinnedProblem("rows_and_columns_doubled", doubled),
        PinnedProblem("all_axes_doubled", video),
        PinnedProblem("reflected", reflected),
        PinnedProblem("replicated", around, "trn3"),
        PinnedProblem("replicated_layer", whole),
        PinnedProblem("replicated_layer", whole, accuracy="fast"),
    ]


def _groups() -> list[PinnedProblem]:
    grouped = conv_shape((1, 128, 3, 20, 30), (128, 32, 3, 3, 3), padding=1, groups=4)
    long = conv_shape((1, 512, 4096), (512, 1, 4), padding=((3, 0),), groups=512)
    image = conv_shape((1, 96, 56, 56), (96, 1, 7, 7), padding=3, groups=96)
    video = conv_shape((1, 256, 4, 30, 52), (256, 1, 3, 3, 3), padding=1, groups=256)
    several = conv_shape((2, 20, 200), (60, 1, 5), padding=2, groups=20)
    depthwise = {"signal": long, "image": image, "video": video, "several": several}
    found = [PinnedProblem("four_groups", grouped, machine) for machine in _TARGETS]
    for asks in (CONVOLUTION, DEPTHWISE):
        for name, shape in depthwise.items():
            for machine, dtype in (("trn2", "bfloat16"), ("trn2", "float32"), ("trn3", "float32")):
                named = f"depthwise_{name}"
                found.append(PinnedProblem(named, shape, machine, dtype, asks=asks))
    return found


def _weight_gradients() -> list[PinnedProblem]:
    strided = conv_shape((1, 96, 5, 60, 80), (96, 96, 3, 3, 3), stride=2, padding=1)
    grouped = conv_shape((2, 32, 12, 13), (64, 4, 3, 3), padding=1, groups=8)
    signal = conv_shape((1, 24, 300), (24, 24, 3), dilation=9, padding=9)
    shapes = {
        "wan_96_wide": _LAYERS["wan_96_wide"],
        "wan_384_480p_1_frame": _LAYERS["wan_384_480p_1_frame"],
        "wan_pointwise_384": _LAYERS["wan_pointwise_384"],
        "strided": strided,
        "grouped": grouped,
        "signal": signal,
    }
    return [
        PinnedProblem(name, shape, machine, dtype, asks=WEIGHT_GRADIENT)
        for name, shape in shapes.items()
        for machine, dtype in (("trn2", "bfloat16"), ("trn1", "float32"), ("trn3", "bfloat16"))
    ]
