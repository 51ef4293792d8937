"""Random kernels against models that share no code with nkisim: values, refusals and races."""

import re

import numpy as np
import pytest

import random_core_pairs
import random_kernels
from nkisim.errors import NkiValidationError
from nkisim.running.kernel import Kernel, run
from repetition import few

EVERY_RUN = 1_000  # kernels with values, in every run of the tests
EVERY_RUN_PAIRS = 500  # kernels on two cores
ON_DEMAND = 20_000  # with -m fuzz
ON_DEMAND_PAIRS = 10_000
PARTS = 10  # the tests are cut into, so that several processes share them


def chunk(part, total):
    return range(part * total // PARTS, (part + 1) * total // PARTS)


def difference(seed):
    """What a random kernel does other than its model; None if nothing."""
    program = random_kernels.Maker(seed).make()
    arguments = random_kernels.arguments_of(program)
    try:
        found = run(random_kernels.kernel_of(program), *arguments, machine="trn2").outputs
    except NkiValidationError as refusal:
        expected = program.refusal is not None and program.refusal in refusal.limit
        return None if expected else f"seed {seed}: refused: {refusal}"
    if program.refusal is not None:
        return f"seed {seed}: not refused, though the last step {program.steps[-1]} is undefined"
    tiles = [tile for tile in program.tiles if tile.where == "sbuf"]
    for tile, output in zip(tiles, found, strict=True):
        expected = program.model.data[tile].reshape(output.shape)
        if output.dtype != expected.dtype:
            return f"seed {seed}: {tile} is {output.dtype}"
        wide = [np.asarray(each).astype(np.float64) for each in (output, expected)]
        if not np.array_equal(*wide, equal_nan=True):
            return f"seed {seed}: {tile} differs"
    return None


def wrong_races(seed):
    """Races that are missed or false in a random kernel on two cores; None if there are none."""
    program = random_core_pairs.Maker(seed).make()
    expected = random_core_pairs.Oracle(program).races()
    shape = (random_core_pairs.ROWS, random_core_pairs.COLUMNS)
    for values in (False, True) if seed % 4 == 0 else (False,):
        x = np.zeros(shape, np.float32)
        done = run(Kernel(program.kernel)[2], x, machine="trn2", values=values, races="report")
        found = {
            (race.tensor, *(instruction_of(side) for side in (race.first, race.second)))
            for race in done.races
        }
        if found != expected:
            return f"seed {seed}: missed {expected - found}, false {found - expected}"
    return None


def instruction_of(words):
    return int(re.search(r"instruction (\d+)", words).group(1))


@few(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_kernels_compute_what_their_model_does(part):
    assert [d for d in map(difference, chunk(part, EVERY_RUN)) if d] == []


@few(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_races_of_random_core_pairs_are_those_of_every_element_and_chain(part):
    assert [d for d in map(wrong_races, chunk(part, EVERY_RUN_PAIRS)) if d] == []


def test_random_kernels_meet_what_they_are_made_for():
    """A fifth of the pairs, at least, has a race, and as many have none; some steps are refused."""
    pairs = [random_core_pairs.Maker(seed).make() for seed in range(100)]
    racy = sum(1 for pair in pairs if random_core_pairs.Oracle(pair).races())
    assert 20 <= racy <= 80
    programs = [random_kernels.Maker(seed).make() for seed in range(100)]
    refused = sum(1 for program in programs if program.refusal is not None)
    assert 2 <= refused <= 40
    issued = {step.op for program in programs for step in program.steps}
    assert issued == set(random_kernels.MAKERS)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_kernels_compute_what_their_model_does(part):
    assert [d for d in map(difference, chunk(part, ON_DEMAND)) if d] == []


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
def test_races_of_many_random_core_pairs_are_those_of_every_element_and_chain(part):
    assert [d for d in map(wrong_races, chunk(part, ON_DEMAND_PAIRS)) if d] == []
