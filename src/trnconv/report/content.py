"""What a report says, as data: frozen records of numbers and words, and their JSON.

Nothing here knows how it is shown. Times are modelled; units are in the names.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SCHEMA_VERSION = 4  # 4: latencies; 3: what is no convolution; 2: launches of two cores


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the report is about."""

    kind: str  # model or layer
    title: str
    name: str  # of the model in the registry, or of the layer
    phase: str  # encode or decode; empty for a layer
    size: str  # as the command takes it
    source: str  # where the list of convolutions comes from


@dataclass(frozen=True, kw_only=True)
class Origin:
    """How the report was made."""

    command: str
    date: str
    trnconv_version: str
    nkisim_version: str
    python_version: str


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """The cores of one launch, as far as pictures need them."""

    name: str
    constants_version: str
    reading: str
    cores: int  # of a launch
    peak_tflops: float  # of these cores, bf16, dense
    hbm_gb_per_s: float  # what their DMA engines sustain, and the stack they share
    sbuf_bytes_per_partition: int
    psum_banks: int
    cores_per_chip: int


@dataclass(frozen=True, kw_only=True)
class Totals:
    """All convolutions of the subject, one launch after the other; `whole` has all else, too."""

    accuracy: str
    seconds: float
    whole_seconds: float
    baseline_seconds: float | None  # None where it is not known for every call
    baseline_whole_seconds: float | None
    calls: int
    launches: int
    multiply_adds: int  # of direct convolutions
    executed_multiply_adds: int  # what the array does, useful or not
    hbm_bytes: int
    copied_bytes: int  # padding, concatenation and the like: among what is no convolution
    static_instructions: int


@dataclass(frozen=True, kw_only=True)
class LatencyRow:
    """The whole on so many cores: planned, or a bound of it."""

    cores: int
    seconds: float
    bound: str  # empty, at most, at least
    how: str


@dataclass(frozen=True, kw_only=True)
class KindRow:
    """Operations of a kind that are no convolutions, each as a kernel of its own."""

    kind: str
    calls: int
    moved_bytes: int
    as_written_bytes: int  # by torch's operators, one by one
    seconds: float
    share: float  # of the whole
    bound: str
    price_of: str  # a kernel of ours, or what no kernel can be faster than


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """Equal convolutions of the subject; numbers of one call unless they say total."""

    number: int  # 1 takes the most time
    modules: tuple[str, ...]
    c_in: int
    c_out: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    size: tuple[int, ...]  # of the input
    out: tuple[int, ...]
    calls: int
    ns: float
    total_ns: float
    share: float  # of all convolutions
    algorithm: str
    bound: str
    multiply_adds: int
    hbm_bytes: int
    flop_per_byte: float
    tflops: float  # by the multiply-adds of a direct convolution
    of_peak: float
    instructions: int
    total_instructions: int
    launches: int
    sbuf_bytes_per_partition: int
    baseline_ns: float | None

    @property
    def label(self) -> str:
        """Channels and taps: 96 -> 96, 3x3x3."""
        return f"{self.c_in}\u2009\u2192\u2009{self.c_out}, {by_times(self.kernel)}"


@dataclass(frozen=True, kw_only=True)
class BusySpan:
    """A stretch of work of a lane."""

    begin_ns: float
    end_ns: float
    op: str


@dataclass(frozen=True, kw_only=True)
class LaneStrip:
    """One engine, or DMA in one direction, over time."""

    lane: str
    is_dma: bool
    share: float  # busy; of DMA: something is in flight
    idle: str  # where the rest went, in words
    levels: tuple[float, ...]  # how busy it is in equal parts of the whole time
    blocks: tuple[BusySpan, ...]  # in the window


@dataclass(frozen=True, kw_only=True)
class LayerTimeline:
    """When the engines of a core work on the longest launch of a layer.

    Of two cores, the one that ends last; both share a clock, and HBM.
    """

    number: int  # of its LayerRow
    ns: float
    bound: str
    plan: str
    launches: int
    core: int
    ends_ns: tuple[float, ...]  # of every core
    mfu: float
    sbuf_peak_bytes_per_partition: int
    psum_peak_banks: int
    window_begin_ns: float
    window_end_ns: float
    extrapolated: tuple[tuple[float, float], ...]  # stretches of loop iterations that repeat
    strips: tuple[LaneStrip, ...]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much of something limited is used."""

    name: str
    used: float
    limit: float
    unit: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to compute the same convolutions."""

    name: str
    seconds: float
    is_subject: bool  # the one that the rest of the report is about
    note: str


@dataclass(frozen=True, kw_only=True)
class ReadingRow:
    """A scheduled layer in every reading, ns of one call."""

    number: int
    cost_model_ns: float
    optimistic_ns: float
    default_ns: float
    pessimistic_ns: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One open point of the timing model, and what it alone changes in a layer's time."""

    name: str
    default: float
    optimistic: float
    pessimistic: float
    optimistic_change: float  # of the time: -0.01 is 1 % less
    pessimistic_change: float


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What the timing model's open points do to the layers that were scheduled."""

    readings: tuple[ReadingRow, ...]
    scheduled_share: float  # of the time of all convolutions
    effects_of: int  # the layer that `effects` are of; 0 if none was looked at
    effects_cut: str  # how much of it was scheduled for them, if not all
    effects: tuple[Effect, ...]  # the largest first
    without_effect: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything."""

    subject: Subject
    origin: Origin
    machine: MachineFacts
    totals: Totals
    latencies: tuple[LatencyRow, ...]  # of a model
    range_seconds: tuple[float, float] | None  # all else free, and by torch's operators one by one
    layers: tuple[LayerRow, ...]  # by time, the longest first
    others: tuple[KindRow, ...]  # what is no convolution, likewise
    timelines: tuple[LayerTimeline, ...]
    budgets: tuple[Budget, ...]
    contenders: tuple[Contender, ...]
    sensitivity: Sensitivity
    modelled: tuple[str, ...]
    left_out: tuple[str, ...]


def as_json(report: Report) -> dict[str, Any]:
    """The report as one JSON document; keys are the names of the fields."""
    return {"schema_version": SCHEMA_VERSION, "kind": "modelled", **asdict(report)}


def by_times(sizes: tuple[int, ...]) -> str:
    """Sizes as people write them: 3x3x3."""
    return "\u00d7".join(map(str, sizes))
