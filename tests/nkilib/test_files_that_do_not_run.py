"""The files with nki.jit that nkisim does not run, and why."""

import ast

import numpy as np
import pytest

from nki_library import Case, bfloat16, jit_files
from nkisim.errors import NkiValidationError

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

# They exchange data between devices; nkisim has one, and refuses nki.collectives by name.
COLLECTIVE = (
    "experimental/collectives/fg_allgather",
    "experimental/collectives/fgcc",
    "experimental/collectives/sb2sb_allgather",
)


@pytest.mark.parametrize("name", COLLECTIVE)
def test_kernels_that_need_other_devices(library, name):
    module = library.module(name.replace("/", "."))
    used = {getattr(each, "__name__", "") for each in vars(module).values()}
    assert "nkisim.collectives" in used
    case = Case({}, cores=2)
    library.note_refusal(name, case, "collectives: nkisim has one device")


def test_mlp_is_no_python(library):
    """At commit d2ad3a5 the file has an indentation error; its mlp_cte runs in another test."""
    file = jit_files()["core/mlp/mlp"]
    with pytest.raises(IndentationError):
        ast.parse(file.read_text())
    with pytest.raises(IndentationError):
        library.module("experimental.transformer.transformer_tkg")  # it imports mlp
    for name in ("core/mlp/mlp", "experimental/transformer/transformer_tkg"):
        library.note_refusal(name, Case({}, cores=2), "core/mlp/mlp.py is no valid Python")


def test_moe_block_fills_integers_with_a_float(library, rng, numbered_enum):
    """NKI documents memset of an integer tile with a float as an error."""
    numbered_enum(library)
    types = library.module("core.utils.common_types")
    normal = lambda *shape: (rng.standard_normal(shape) / 16).astype(bfloat16)  # noqa: E731
    inputs = {
        "inp": normal(4, 1, 512),
        "gamma": np.ones((1, 512), bfloat16),
        "router_weights": normal(512, 8),
        "expert_gate_up_weights": normal(8, 512, 2, 256),
        "expert_down_weights": normal(8, 256, 512),
        "top_k": 2,
        "router_act_fn": types.RouterActFnType.SOFTMAX,
    }
    case = Case(inputs, cores=2)
    kernel = library.module("core.moe_block.moe_block_tkg").moe_block_tkg
    with pytest.raises(NkiValidationError, match="a float into a uint32 tile"):
        library.run(kernel, case)
    library.note_refusal("core/moe_block/moe_block_tkg", case, "memset of a uint32 tile with 0.0")
