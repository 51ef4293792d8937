"""experimental/loss: cross entropy over a vocabulary in chunks, forward and backward."""

import numpy as np
import pytest

from nki_library import Case, Tolerance, bfloat16, narrow
from nkisim.errors import NkiValidationError

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

# The library's test_cross_entropy_{forward,backward}.py: rtol = atol = 1e-2 for bfloat16, 1e-5 for
# float32.
TOLERANCE = {bfloat16: Tolerance(1e-2, 1e-2), np.float32: Tolerance(1e-5, 1e-5)}
SIZES = [  # positions, vocabulary, positions per batch, chunk, dtype
    (128, 1024, 64, 512, bfloat16),
    (32, 1000, 16, 300, np.float32),
    (7, 3001, 4, 1024, bfloat16),
    (66, 777, 64, 777, np.float32),
]


def cross_entropy_inputs(rng, size):
    positions, vocabulary, per_batch, chunk, dtype = size
    return {
        "logits_hbm": rng.standard_normal((positions, vocabulary)).astype(dtype),
        "targets_hbm": rng.integers(0, vocabulary, positions, dtype=np.int32),
        "positions_per_batch": per_batch,
        "chunk_size": chunk,
        "dtype": np.dtype(dtype).name,
    }


def references(library, inputs):
    module = library.module("experimental.loss.cross_entropy_torch")
    return module, narrow(inputs["logits_hbm"]), narrow(inputs["targets_hbm"]).long()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_cross_entropy_forward(library, rng, size, cores):
    inputs = cross_entropy_inputs(rng, size)
    module, logits, targets = references(library, inputs)
    library.check(
        "experimental/loss/cross_entropy_forward",
        library.module("experimental.loss").cross_entropy_forward,
        Case(inputs, TOLERANCE[size[-1]], cores),
        module.cross_entropy_forward_torch_ref(logits, targets),
    )


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_cross_entropy_backward(library, rng, size, reduction, cores):
    inputs = cross_entropy_inputs(rng, size)
    module, logits, targets = references(library, inputs)
    lse = module.cross_entropy_forward_torch_ref(logits, targets)[1]
    inputs["lse_state_hbm"] = lse.float().numpy().astype(size[-1])
    inputs["reduction"] = reduction
    library.check(
        "experimental/loss/cross_entropy_backward",
        library.module("experimental.loss").cross_entropy_backward,
        Case(inputs, TOLERANCE[size[-1]], cores),
        module.cross_entropy_backward_torch_ref(logits, targets, reduction),
    )


def test_a_core_without_positions_makes_an_empty_view_which_is_refused(library, rng):
    """One position on two cores: the first gets none and slices 0:0, though it uses none of it."""
    case = Case(cross_entropy_inputs(rng, (1, 777, 1, 777, bfloat16)), cores=2)
    with pytest.raises(NkiValidationError, match="slice 0:0"):
        library.run(library.module("experimental.loss").cross_entropy_forward, case)
    name = "experimental/loss/cross_entropy_forward (fewer positions than cores)"
    library.note_refusal(name, case, "an empty slice, which it never uses")
