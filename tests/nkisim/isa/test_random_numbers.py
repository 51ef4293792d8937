"""Instructions on the device's random stream, which is not documented, are refused by name."""

import inspect

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.enums import engine
from nkisim.errors import UnsupportedError
from nkisim.running.kernel import run

SIGNATURES = {
    "rng": ["dst", "engine", "name"],
    "dropout": ["dst", "data", "prob", "name"],
    "set_rng_seed": ["src_seeds", "name"],
    "rand_set_state": ["src_seeds", "engine", "name"],
    "rand_get_state": ["dst", "engine", "name"],
    "rand2": ["dst", "min", "max", "name"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_it_is_refused_with_its_name_and_what_to_do(name):
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        required = len(SIGNATURES[name]) - (2 if "engine" in SIGNATURES[name] else 1)
        getattr(nisa, name)(*[tile, tile, 0.5][:required])

    with pytest.raises(UnsupportedError) as caught:
        run(kernel, np.zeros((4, 4), np.float32), machine="trn3")
    assert caught.value.instruction == f"nisa.{name}"
    assert "random stream is not documented" in caught.value.limit
    assert "kernel argument" in caught.value.remedy


@pytest.mark.parametrize("name", SIGNATURES)
def test_it_has_the_parameters_of_nki(name):
    assert list(inspect.signature(getattr(nisa, name)).parameters) == SIGNATURES[name]


def test_engines_have_their_defaults():
    assert inspect.signature(nisa.rng).parameters["engine"].default is engine.vector
    for name in ("rand_set_state", "rand_get_state"):
        default = inspect.signature(getattr(nisa, name)).parameters["engine"].default
        assert default is engine.gpsimd
