"""`python -m benchmarks networks`: every convolution of networks for images, planned and priced.

A check of generality: the networks are those of `benchmarks/image_networks`. Times are of a launch
on trn2, by the planner's cost model, convolutions only, each with its activation and residual; a
layer that is refused is listed with the reason. `--layers` and `--kinds` say where time goes. The
least time is that of all products at peak, or of reading all weights once: what is left for whoever
keeps activations on chip.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.image_networks import NETWORKS, ImageLayer, ImageNetwork
from benchmarks.table import Column, aligned, microseconds, significant
from nkisim.machine import CONSTANTS_VERSION, TRN2
from trnconv.errors import TrnconvError
from trnconv.problem.conv_problem import ConvProblem, Shape
from trnconv.problem.cores import describe_cores
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.runtime.pricing import price

HELP = "networks for images, as a check of generality"
BATCHES = {"sdxl-unet": (1, 2)}  # 2: a step with guidance
MANY = (1, 8)  # batches of all others
_DTYPE = "bfloat16"

_FIGURES = [
    Column("calls"),
    Column("GMAC"),
    Column("ms"),
    Column("least\nms"),
    Column("of peak\n%"),
    Column("what bounds them, by time", "<"),
]


@dataclass(frozen=True)
class PricedLayer:
    """Equal layers of a network: what one of them takes, or why it was refused."""

    name: str  # of the first
    kind: str
    channels: str
    size: str  # of the input
    calls: int
    macs: int  # of one
    weights: int  # numbers in its filters
    ns: float
    bound: str
    hbm_bytes: int
    refusal: str = ""


_Pool = Callable[
    [Callable[[tuple[ImageLayer, int]], PricedLayer], Sequence[tuple[ImageLayer, int]]],
    Iterable[PricedLayer],
]


@dataclass(frozen=True)
class NetworkRow:
    """All convolutions of a network, or all of a kind."""

    network: str
    size: str
    batch: int
    layers: tuple[PricedLayer, ...]
    cores: int

    @property
    def calls(self) -> int:
        """Convolutions of one forward pass."""
        return sum(layer.calls for layer in self.layers)

    @property
    def refused(self) -> int:
        """Those without a plan."""
        return sum(layer.calls for layer in self.layers if layer.refusal)

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return sum(layer.calls * layer.macs for layer in self.layers)

    @property
    def ns(self) -> float:
        """One after the other."""
        return sum(layer.calls * layer.ns for layer in self.layers)

    @property
    def least_ns(self) -> float:
        """All products at the arrays' peak, or all weights read once, whichever takes longer.

        What is left if nothing else goes through HBM and no product is saved.
        """
        weights = sum(layer.calls * layer.weights for layer in self.layers)
        reading = ITEM_BYTES[_DTYPE] * weights / TRN2.timing.hbm_bytes_per_ns
        return max(self.macs / peak_macs_per_ns(self.cores), reading)

    @property
    def of_peak(self) -> float:
        """The layers' own multiply-adds over what the arrays could do in that time.

        More than 1 where fewer are done: by a fast algorithm, or on what is upsampled.
        """
        return self.macs / (self.ns * peak_macs_per_ns(self.cores)) if self.ns else 0.0

    @property
    def bounds(self) -> str:
        """Shares of the time by what bounds a layer."""
        spent: dict[str, float] = {}
        for layer in self.layers:
            spent[layer.bound] = spent.get(layer.bound, 0.0) + layer.calls * layer.ns
        longest = sorted(spent.items(), key=lambda share: -share[1])
        return ", ".join(f"{bound} {ns / self.ns:.0%}" for bound, ns in longest if ns)


def peak_macs_per_ns(cores: int) -> float:
    """What the arrays of trn2 multiply at their clock."""
    return cores * TRN2.partitions**2 * TRN2.timing.pe_ghz


def priced_layer(counted: tuple[ImageLayer, int], *, cores: int) -> PricedLayer:
    """A layer that is called so many times."""
    layer, calls = counted
    ns, bound, hbm_bytes, refusal = 0.0, "", 0, ""
    try:
        priced = price(ConvProblem(layer.shape, TRN2, _DTYPE, epilogue=layer.epilogue), cores=cores)
        ns, bound, hbm_bytes = priced.ns, priced.bound, priced.hbm_bytes
    except TrnconvError as error:
        refusal = str(error)
    return PricedLayer(
        layer.name,
        layer.kind,
        f"{layer.shape.c_in}:{layer.shape.c_out}",
        f"{layer.shape.size[1]}x{layer.shape.size[2]}",
        calls,
        layer.shape.macs(),
        layer.weights,
        ns,
        bound,
        hbm_bytes,
        refusal,
    )


def row_of(network: ImageNetwork, cores: int, pool: _Pool) -> NetworkRow:
    """Equal layers are priced once."""
    priced = tuple(pool(partial(priced_layer, cores=cores), counted_layers(network)))
    return NetworkRow(network.name, network.size, network.batch, priced, cores)


def counted_layers(network: ImageNetwork) -> list[tuple[ImageLayer, int]]:
    """The first of each set of equal layers, in order, and how many there are."""
    first: dict[tuple[Shape, object], ImageLayer] = {}
    counts: Counter[tuple[Shape, object]] = Counter()
    for layer in network.layers:
        first.setdefault((layer.shape, layer.epilogue), layer)
        counts[layer.shape, layer.epilogue] += 1
    return [(layer, counts[key]) for key, layer in first.items()]


def by_kind(row: NetworkRow) -> list[tuple[str, NetworkRow]]:
    """The same for layers of one kind, those that take longest first."""
    totals = {
        kind: NetworkRow(
            row.network,
            row.size,
            row.batch,
            tuple(layer for layer in row.layers if layer.kind == kind),
            row.cores,
        )
        for kind in dict.fromkeys(layer.kind for layer in row.layers)
    }
    return sorted(totals.items(), key=lambda named: -named[1].ns)


def table(rows: Sequence[NetworkRow]) -> str:
    """A line for each network."""
    columns = [Column("network", "<"), Column("size", "<"), Column("batch")]
    columns += _FIGURES
    return aligned(
        columns, [[row.network, row.size, f"{row.batch}", *_figures(row)] for row in rows]
    )


def kinds_table(rows: Sequence[NetworkRow]) -> str:
    """A line for each kind of layer of each network."""
    columns = [Column("network", "<"), Column("batch"), Column("kind", "<"), *_FIGURES]
    lines = [
        [row.network, f"{row.batch}", kind, *_figures(part)]
        for row in rows
        for kind, part in by_kind(row)
    ]
    return aligned(columns, lines)


def _figures(row: NetworkRow) -> list[str]:
    return [
        f"{row.calls}",
        significant(row.macs / 1e9),
        significant(row.ns / 1e6),
        significant(row.least_ns / 1e6),
        f"{100 * row.of_peak:.1f}",
        row.bounds,
    ]


def layers_table(row: NetworkRow) -> str:
    """A line for each distinct layer of a network."""
    columns = [Column("layer", "<"), Column("kind", "<"), Column("channels"), Column("input")]
    columns += [Column("calls"), Column("GMAC"), Column("us\neach"), Column("of peak\n%")]
    columns += [Column("HBM\nMB"), Column("bound", "<")]
    return aligned(columns, [_layer_cells(layer, row.cores) for layer in row.layers])


def _layer_cells(layer: PricedLayer, cores: int) -> list[str]:
    of_peak = layer.macs / (layer.ns * peak_macs_per_ns(cores)) if layer.ns else 0.0
    return [
        layer.name,
        layer.kind,
        layer.channels,
        layer.size,
        f"{layer.calls}",
        significant(layer.macs / 1e9),
        microseconds(layer.ns),
        f"{100 * of_peak:.1f}",
        significant(layer.hbm_bytes / 1e6),
        layer.refusal or layer.bound,
    ]


def last_line(rows: Sequence[NetworkRow]) -> str:
    """What became of all convolutions."""
    calls, refused = sum(row.calls for row in rows), sum(row.refused for row in rows)
    return f"{len(rows)} networks, {calls - refused} convolutions planned, {refused} refused"


def refusals(rows: Sequence[NetworkRow]) -> list[str]:
    """A line for each layer without a plan, with the reason."""
    return [
        f"refused: {row.network} {layer.name}: {layer.refusal}"
        for row in rows
        for layer in row.layers
        if layer.refusal
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--network", action="append", choices=sorted(NETWORKS), help="only this")
    parser.add_argument("--batch", type=int, help="images at once; default: 1, and a larger one")
    parser.add_argument("--cores", type=int, default=2, choices=[1, 2], help="of a launch")
    parser.add_argument("--kinds", action="store_true", help="also by kind of layer")
    parser.add_argument("--layers", action="store_true", help="also layer by layer")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")


def main(options: argparse.Namespace) -> int:
    """Price every network, print the tables; the exit code."""
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        rows = list(_rows(options, pool.map))
    print(
        f"Modelled, trn2, constants {CONSTANTS_VERSION}, default reading, bf16,"
        f" {describe_cores(options.cores)}, accuracy bf16, cost model of the planner; nothing was"
        " measured.\nConvolutions only, batch norms folded: no pooling, attention, other norms, and"
        " no launches.\n"
    )
    print(table(rows))
    if options.kinds:
        print("", kinds_table(rows), sep="\n")
    for row in rows if options.layers else ():
        print(f"\n{row.network}, batch {row.batch}\n{layers_table(row)}")
    print("", *refusals(rows), last_line(rows), sep="\n")
    if options.json is not None:
        document = {"constants": CONSTANTS_VERSION, "networks": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _rows(options: argparse.Namespace, pool: _Pool) -> Iterator[NetworkRow]:
    for name in options.network or NETWORKS:
        for batch in BATCHES.get(name, MANY) if options.batch is None else (options.batch,):
            row = row_of(NETWORKS[name](batch), options.cores, pool)
            print(f"{name}, batch {batch}", file=sys.stderr, flush=True)
            yield row
