"""`trnconv layers`: the convolutions that are known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnconv.cli.output import Json
from trnconv.cli.sheet import Csv, Field, Sheet, Wide, print_list, sheet

if TYPE_CHECKING:
    from trnconv.cases import Case

_COLUMNS = (
    Field("key", words=True),
    Field("name", words=True),
    Field("channels"),
    Field("taps"),
    Field("input"),
    Field("dtype", words=True, rank=2),
    Field("where it comes from", words=True, rank=1),
)


def layers(json: Json = False, csv: Csv = False, wide: Wide = False) -> None:
    """List the layers that other commands accept by name or key."""
    from trnconv.cases import BENCHMARK

    answer = {"layers": [_document(case) for case in BENCHMARK]}
    words = "Any other layer: --channels 96:96 --kernel 3x3x3 --size 6x48x1280 --padding 0x1x1."
    print_list(answer, _sheet(answer), words, json=json, csv=csv, wide=wide)


def _document(case: Case) -> dict[str, Any]:
    shape = case.shape
    return {
        "name": case.name,
        "key": case.key,
        "channels": [shape.c_in, shape.c_out],
        "kernel": list(shape.kernel),
        "batch": shape.batch,
        "size": list(shape.size),
        "dtype": case.dtype,
        "note": case.note,
    }


def _sheet(answer: dict[str, Any]) -> Sheet:
    return sheet(_COLUMNS, [_row(layer) for layer in answer["layers"]])


def _row(layer: dict[str, Any]) -> tuple[str, ...]:
    images = "" if layer["batch"] == 1 else f"{layer['batch']} x "
    return (
        layer["key"],
        layer["name"],
        "{}:{}".format(*layer["channels"]),
        "x".join(map(str, layer["kernel"])),
        images + "x".join(map(str, layer["size"])),
        layer["dtype"],
        layer["note"],
    )
