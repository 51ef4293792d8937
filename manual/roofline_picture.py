"""Rooflines of five models side by side: every convolution of a decode as a dot."""

from __future__ import annotations

from collections.abc import Iterator
from math import log10, sqrt

from manual.canvas import box, line, picture, text
from nkisim.machine import TRN2
from trnconv.model_plan import LayerPlan, PlanOptions, Prices, model_plan
from trnconv.models import find
from trnconv.models.sizes import size_of
from trnconv.report.records import machine_facts

_MODELS = {
    "wan2.1": "Wan 2.1",
    "wan2.2-5b": "Wan 2.2 5B",
    "hunyuanvideo": "HunyuanVideo",
    "cogvideox": "CogVideoX",
    "ltx-video-0.9.7": "LTX-Video 0.9.7",
}
_COLOURS = {"tensor": "#0072b2", "dma": "#d55e00", "dma issue": "#d55e00", "vector": "#009e73"}
_OTHER = "#8a939e"
_WIDTH, _HEIGHT, _GAP = 330, 250, 66
_LEFT, _TOP = 70, 116
_X, _Y = (1.0, 30000.0), (0.5, 3000.0)  # FLOP per byte, TFLOP/s


def draw() -> str:
    """Five panels and a legend."""
    parts = [
        text((24, 36), "Rooflines of five decoders", 20, font_weight="600"),
        text(
            (24, 60),
            "A dot is a convolution, its area the share of the convolutions' time. Modelled: trn2,"
            f" constants {TRN2.constants}, two cores, bf16.",
            14,
            "faint",
        ),
    ]
    for number, (model, title) in enumerate(_MODELS.items()):
        corner = (_LEFT + number % 3 * (_WIDTH + _GAP), _TOP + number // 3 * (_HEIGHT + 92))
        parts += _panel(corner, model, title)
    parts += _legend((_LEFT + 2 * (_WIDTH + _GAP), _TOP + _HEIGHT + 92 + 30))
    size = (_LEFT + 3 * (_WIDTH + _GAP) - 24, _TOP + 2 * (_HEIGHT + 92) - 44)
    return picture(size, "Rooflines of five models, modelled", parts)


def _layers(model: str) -> tuple[tuple[LayerPlan, ...], str]:
    entry, options = find(model), PlanOptions()
    clip = size_of(entry, "")
    plan = model_plan(entry, clip, "decode", options, Prices(cores=None))
    return plan.layers, f"{clip.height} x {clip.width}, {clip.frames} frames"


def _place(corner: tuple[float, float], x: float, y: float) -> tuple[float, float]:
    across = log10(min(max(x, _X[0]), _X[1]) / _X[0]) / log10(_X[1] / _X[0])
    up = log10(min(max(y, _Y[0]), _Y[1]) / _Y[0]) / log10(_Y[1] / _Y[0])
    return corner[0] + across * _WIDTH, corner[1] + _HEIGHT - up * _HEIGHT


def _panel(corner: tuple[float, float], model: str, title: str) -> Iterator[str]:
    layers, size = _layers(model)
    left, top = corner
    yield text((left, top - 12), title, 15, font_weight="600")
    yield text((left + _WIDTH, top - 12), size, 12, "faint", text_anchor="end")
    yield box(corner, (_WIDTH, _HEIGHT), "lane")
    yield from _grid(corner)
    facts = machine_facts(TRN2, PlanOptions().launch_cores)
    ridge = 1e3 * facts.peak_tflops / facts.hbm_gb_per_s
    low = _X[0] * facts.hbm_gb_per_s / 1e3
    ends = ((_X[0], low), (ridge, facts.peak_tflops), (_X[1], facts.peak_tflops))
    points = " ".join("{:.1f},{:.1f}".format(*_place(corner, *end)) for end in ends)
    yield f'<polyline points="{points}" class="roof"/>'
    whole = sum(layer.ns for layer in layers)
    for layer in sorted(layers, key=lambda layer: -layer.ns):
        x, y = _place(corner, 2 * layer.macs / layer.hbm_bytes, 2 * layer.macs / layer.ns / 1e3)
        radius = max(2.5, 30 * sqrt(layer.ns / whole))
        colour = _COLOURS.get(layer.price.bound, _OTHER)
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}"'
            f' fill-opacity="0.55" stroke="{colour}"/>'
        )


def _grid(corner: tuple[float, float]) -> Iterator[str]:
    left, top = corner
    for value in (1, 10, 100, 1000):
        x, _ = _place(corner, value, 1)
        yield line((x, top), (x, top + _HEIGHT))
        yield text((x, top + _HEIGHT + 17), f"{value:,}", 12, "faint", text_anchor="middle")
    for value in (1, 10, 100, 1000):
        _, y = _place(corner, 1, value)
        yield line((left, y), (left + _WIDTH, y))
        yield text((left - 7, y + 4), f"{value:,}", 12, "faint", text_anchor="end")
    yield text((left + _WIDTH, top + _HEIGHT + 17), "FLOP/byte", 12, "faint", text_anchor="end")
    yield text((left + 6, top + 16), "TFLOP/s", 12, "faint")


def _legend(corner: tuple[float, float]) -> Iterator[str]:
    left, top = corner
    kinds = {
        "bound by the Tensor engine": "#0072b2",
        "bound by DMA": "#d55e00",
        "bound by the Vector engine": "#009e73",
        "bound by another": _OTHER,
    }
    for number, (words, colour) in enumerate(kinds.items()):
        y = top + 26 * number
        yield f'<circle cx="{left + 8:.1f}" cy="{y - 5:.1f}" r="8" fill="{colour}"/>'
        yield text((left + 26, y), words, 14)
    notes = (
        "The line is the roof: DMA's rate, then the",
        "Tensor engine's peak. Work is what the",
        "model asks for: fast algorithms and merged",
        "taps multiply less, and lie above the roof.",
    )
    for number, words in enumerate(notes):
        yield text((left, top + 130 + 20 * number), words, 13, "faint")
