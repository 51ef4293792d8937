"""Every instruction that nkisim implements has a cost rule, and every rule an instruction."""

import importlib
import pkgutil

import pytest

import nkisim.isa
from nkisim.errors import UnsupportedError
from nkisim.isa.contract import Contract
from nkisim.machine import MACHINES, TRN2, Reading
from nkisim.timing.costs import RULES, cost_of
from nkisim.timing.costs.cost import cost_rule
from timing_instructions import engine, instruction, whole

WITHOUT_CONTRACT = {"register_move"}  # it has no tensors for a contract to look at


def contracts():
    modules = [
        importlib.import_module(f"nkisim.isa.{found.name}")
        for found in pkgutil.iter_modules(nkisim.isa.__path__)
    ]
    values = (value for module in modules for value in vars(module).values())
    return {value.name: value for value in values if isinstance(value, Contract)}


def test_every_instruction_has_a_rule_and_every_rule_an_instruction():
    assert set(RULES) == set(contracts()) | WITHOUT_CONTRACT


@pytest.mark.parametrize("name", sorted(MACHINES))
@pytest.mark.parametrize("op", sorted(RULES))
def test_a_rule_knows_every_engine_of_its_instruction(op, name):
    machine = MACHINES[name].read(Reading.default)
    found = contracts().get(op)
    for where in found.engines if found else (engine.sync,):
        reads = [whole((32, 32), "bfloat16") for _ in range(2)]
        one = instruction(op, where, [whole((32, 32), "bfloat16")], reads, n=64)
        cost = cost_of(one, machine)
        assert cost.busy_ns > 0 or op == "sendrecv"
        assert cost.latency_ns >= cost.busy_ns
        assert (cost.transfer is not None) == (where is engine.dma)


def test_an_instruction_without_a_rule_is_refused():
    with pytest.raises(
        UnsupportedError, match=r"no cost rule for nc_dream[\s\S]*remedy: add a rule"
    ):
        cost_of(instruction("nc_dream", engine.vector, [whole((1, 1))]), TRN2)


def test_an_instruction_has_one_rule():
    with pytest.raises(ValueError, match="nc_matmul has two cost rules"):
        cost_rule("nc_matmul")(RULES["nc_matmul"])
