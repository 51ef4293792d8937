"""What kernels ask of a compiler: options of nki.jit, and the switches of Kernel."""

import numpy as np
import pytest

import nkisim
import nkisim.language as nl
from nkisim.errors import NkiValidationError, UnsupportedError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@nkisim.jit(
    mode="auto",
    debug_kernel=True,
    show_compiler_tb=True,
    experimental_flags="skip-non-top-level-shared-hbm-check",
)
def copied(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_options_of_shipped_kernels_are_kept():
    assert dict(copied.build.options) == {
        "mode": "auto",
        "debug_kernel": True,
        "show_compiler_tb": True,
        "experimental_flags": "skip-non-top-level-shared-hbm-check",
    }
    np.testing.assert_array_equal(copied(X), X)


def test_an_option_nobody_has_seen_is_refused():
    with pytest.raises(UnsupportedError, match="option fast_math") as caught:
        nkisim.jit(fast_math=True)
    assert "experimental_flags" in caught.value.limit


def test_switches_return_new_kernels_and_stay_through_a_launch_grid():
    switched = (
        copied.disable_address_rotation()
        .enable_core_barrier_checker()
        .enable_non_ssa_legalization()
    )
    build = switched[2].with_schedule([]).build
    assert (build.address_rotation, build.barrier_check, build.non_ssa_legalization) == (
        False,
        True,
        True,
    )
    assert build.options == copied.build.options
    undone = switched.enable_address_rotation().disable_core_barrier_checker().build
    assert (undone.address_rotation, undone.barrier_check) == (True, False)
    assert copied.build.barrier_check is False
    np.testing.assert_array_equal(switched(X), X)


@pytest.mark.parametrize("edges", [[("a",)], [("a", ("b",))], [["a", "b"]], [(1, "b")], "ab", 3])
def test_edges_of_a_schedule_are_pairs_of_names(edges):
    with pytest.raises(NkiValidationError, match="with_schedule"):
        copied.with_schedule(edges)
