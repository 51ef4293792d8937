"""What holds for every operand of every compute instruction, whatever the instruction means."""

from dataclasses import dataclass, field

import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import issued, refused
from nkisim.enums import reduce_cmd
from nkisim.running.kernel import run

TILE, COLUMN = (16, 8), (16, 1)


@dataclass(frozen=True)
class Case:
    """A legal call on trn3: shapes of the tiles and the other arguments."""

    instruction: object
    tiles: dict
    arguments: dict = field(default_factory=dict)
    dtypes: dict = field(default_factory=dict)

    def call(self, **changed):
        """Issue it with some tiles exchanged."""
        tiles = {name: changed.get(name) or self.tile(name) for name in self.tiles}
        self.instruction(**tiles, **self.arguments)

    def tile(self, name, dtype=None):
        return nl.ndarray(self.tiles[name], dtype or self.dtype(name), nl.sbuf)

    def dtype(self, name):
        return self.dtypes.get(name, nl.float32)


def sizes(wide, columns=""):
    """Whole tiles by name, then columns by name."""
    return dict.fromkeys(wide.split(), TILE) | dict.fromkeys(columns.split(), COLUMN)


RESET = {"reduce_cmd": reduce_cmd.reset_reduce}
LOAD = {"reduce_cmd": reduce_cmd.load_reduce}
STEPS = {"op0": nl.multiply, "op1": nl.add}
WITHIN = {"comp_op0": nl.less, "comp_op1": nl.less}
AFFINE = {"pattern": [[1, 8]], "channel_multiplier": 1}
MASK = {"predicate": nl.uint8}

CASES = {
    "tensor_tensor": Case(nisa.tensor_tensor, sizes("dst data1 data2"), {"op": nl.add}),
    "scalar_tensor_tensor": Case(
        nisa.scalar_tensor_tensor, sizes("dst data operand1", "operand0"), STEPS
    ),
    "reciprocal": Case(nisa.reciprocal, sizes("dst data")),
    "tensor_scalar": Case(nisa.tensor_scalar, sizes("dst data", "operand0 operand1"), STEPS),
    "tensor_reduce": Case(
        nisa.tensor_reduce, {"dst": (16, 2), "data": (16, 2, 8)}, {"op": nl.add, "axis": 2}
    ),
    "tensor_partition_reduce": Case(
        nisa.tensor_partition_reduce, {"dst": (1, 8), "data": TILE}, {"op": nl.add}
    ),
    "tensor_scalar_reduce": Case(
        nisa.tensor_scalar_reduce,
        sizes("dst data", "operand0 reduce_init reduce_res"),
        {"op0": nl.add, "reduce_op": nl.add, **LOAD},
    ),
    "tensor_scalar_cumulative": Case(
        nisa.tensor_scalar_cumulative, sizes("dst src", "imm0 imm1"), {**STEPS, **LOAD}
    ),
    "tensor_tensor_scan": Case(nisa.tensor_tensor_scan, sizes("dst data0 data1", "initial"), STEPS),
    "bn_stats": Case(nisa.bn_stats, {"dst": (16, 6), "data": TILE}),
    "bn_aggr": Case(nisa.bn_aggr, {"dst": (16, 2), "data": (16, 6)}),
    "activation": Case(
        nisa.activation,
        sizes("dst data", "bias scale reduce_res"),
        {"op": nl.exp, "reduce_op": nl.add, **RESET},
    ),
    "activation_reduce": Case(
        nisa.activation_reduce,
        sizes("dst data", "bias scale reduce_res"),
        {"op": nl.exp, "reduce_op": nl.add},
    ),
    "activate2": Case(
        nisa.activate2,
        sizes("dst data", "imm0 imm1 relu_param reduce_res"),
        {"op": nl.prelu, "reduce_op": nl.add, **STEPS, **RESET},
    ),
    "exponential": Case(
        nisa.exponential, sizes("dst src", "max_value reduce_init reduce_res"), LOAD
    ),
    "tensor_copy_predicated": Case(
        nisa.tensor_copy_predicated, sizes("dst src predicate"), dtypes=MASK
    ),
    "select_reduce": Case(
        nisa.select_reduce, sizes("dst predicate on_true", "on_false reduce_res"), RESET, MASK
    ),
    "range_select": Case(
        nisa.range_select, sizes("dst on_true_tile", "bound0 bound1 reduce_res"), WITHIN
    ),
    "iota": Case(nisa.iota, sizes("dst"), AFFINE),
    "affine_select": Case(
        nisa.affine_select, sizes("dst on_true_tile"), {"on_false_value": 0.0, **AFFINE}
    ),
}

OPERANDS = [(name, operand) for name, case in CASES.items() for operand in case.tiles]
WRITTEN = [(name, operand) for name, operand in OPERANDS if operand in ("dst", "reduce_res")]


def shapes_only(kernel):
    return run(kernel, machine="trn3", values=False)


@pytest.mark.parametrize("name", CASES)
def test_every_tile_is_read_or_written(name):
    case = CASES[name]
    made = {}

    def kernel():
        made.update({operand: case.tile(operand) for operand in case.tiles})
        case.call(**made)

    instruction = issued(shapes_only(kernel), name)
    written = {access.allocation for access in instruction.writes}
    read = {access.allocation for access in instruction.reads}
    places = {operand: tile.storage.allocation for operand, tile in made.items()}
    results = {place for operand, place in places.items() if (name, operand) in WRITTEN}
    assert written == results
    assert read == set(places.values()) - results


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_packed_types_are_no_numbers(name, operand):
    case = CASES[name]
    if (name, operand) in (("tensor_copy_predicated", "dst"), ("tensor_copy_predicated", "src")):
        limit = "same dtype"  # it copies bits, so two packed tiles would do
    else:
        limit = "^one of .*(float32|uint8)"

    def kernel():
        case.call(**{operand: case.tile(operand, nl.float8_e4m3fn_x4)})

    with refused(name, limit):
        shapes_only(kernel)


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_operands_live_on_the_chip(name, operand):
    case = CASES[name]

    def kernel():
        tensor = nl.ndarray(case.tiles[operand], case.dtype(operand), nl.private_hbm)
        case.call(**{operand: tensor})

    with refused(name, rf"^{operand} may live in (psum, )?sbuf$"):
        shapes_only(kernel)


@pytest.mark.parametrize("name", CASES)
def test_a_result_may_land_on_one_element(name):
    """A kernel that wants only the running sum sends the elements themselves to one place."""
    case = CASES[name]

    def kernel():
        partitions, count = case.tiles["dst"]
        column = nl.ndarray((partitions, 1), case.dtype("dst"), nl.sbuf)
        case.call(dst=column.broadcast(1, count))

    (instruction,) = shapes_only(kernel).trace.instructions()
    assert instruction.op == name


@pytest.mark.parametrize(("name", "operand"), OPERANDS)
def test_a_tile_that_addresses_an_operand_is_read(name, operand):
    case = CASES[name]
    made = {}

    def kernel():
        made["offset"] = offset = nl.ndarray((1, 1), nl.int32, nl.sbuf)
        partitions, *free = case.tiles[operand]
        several = nl.ndarray((partitions, 3, *free), case.dtype(operand), nl.sbuf)
        case.call(**{operand: several.select(1, offset)})

    instruction = issued(shapes_only(kernel), name)
    assert made["offset"].storage.allocation in {access.allocation for access in instruction.reads}
