"""A double of the vendor's `nki`, on top of nkisim. It holds calls to the documented contracts.

- Arrays and tensors are arguments of their own; other arguments are numbers, words, None, tuples
  and NKI objects. A list would mean one value for each rank, and is refused.
- Types are those of a device: no 64-bit arrays. Arrays are contiguous.
- Compiled kernels are kept on the function, by shapes and types of tensors and by the `repr` of
  everything else (NKI 0.7): a `repr` with an address in it is refused, and a call with an equal
  `repr` gets the kernel that was compiled for the first one.
- The grid of a launch is the number of cores of a logical core.
- Every device rule that has a report holds.

`failures` is a set of names of `neuron_failures`.
"""

import enum
import os
from dataclasses import dataclass, field, replace

import numpy as np

import nkisim
from neuron_failures import BY_NAME, rules_hold
from nkisim.language import NKIObject

PLAIN = (int, float, bool, str, type(None), enum.Enum)
CACHE_OFF = "NKI_DISABLE_COMPILE_CACHE"


class NkiDouble:
    """What `import nki` would give: `jit` is what kernels are built with."""

    __version__ = "0.7.0"

    def __init__(self, failures=(), target="trn2", lnc=None):
        self.failures = [BY_NAME[name] for name in failures if name in BY_NAME]
        self.target = target
        self._lnc = lnc
        self.calls = []

    @property
    def lnc(self):
        return self._lnc or int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", "2"))

    def jit(self, function):
        return KernelDouble(function, self)

    def fails(self, name):
        return any(failure.name == name for failure in self.failures)


@dataclass(frozen=True)
class Call:
    """One call: the kernel as it was built, and what it was called with."""

    kernel: object
    args: tuple


@dataclass(frozen=True)
class KernelDouble:
    """The frozen Kernel of 0.7: each method gives a new one."""

    func: object
    nki: NkiDouble = field(repr=False)
    grid: int = 1
    legalised: bool = False
    rotates: bool = True

    def __getitem__(self, grid):
        assert grid in (1, 2), f"a grid of {grid}"
        return replace(self, grid=grid)

    def enable_non_ssa_legalization(self):
        return replace(self, legalised=True)

    def disable_address_rotation(self):
        return replace(self, rotates=False)

    def __call__(self, *args):
        for one in args:
            require_kind(one)
        if self.grid != self.nki.lnc:
            raise RuntimeError(f"NCC_IXGM002: a grid of {self.grid} on cores of {self.nki.lnc}")
        args = self._compiled_for(args)
        self.nki.calls.append((self.func.__name__, args))
        return self._ran(args)

    def _compiled_for(self, args):
        """The arguments, with the constants that the kept kernel was compiled for."""
        if os.environ.get(CACHE_OFF) == "1":
            return args
        kept = self.func.__dict__.setdefault("_nki_compile_cache", {})
        key = repr((tuple(map(self._part, args)), self.grid, self.legalised, self.rotates))
        assert " at 0x" not in key, f"a repr with an address: {key[:200]}"
        constants = kept.setdefault(key, [one for one in args if not is_tensor(one)])
        left = iter(constants)
        return tuple(one if is_tensor(one) else next(left) for one in args)

    def _part(self, one):
        if is_tensor(one):
            return (tuple(one.shape), str(one.dtype))
        return "" if self.nki.fails("stale-cache") else one

    def _ran(self, args):
        failures = self.nki.failures
        rules = {rule for failure in failures for rule in failure.rules}
        switched = [name for name in rules if name == "dma-split-partitions"]
        with rules_hold(rules):
            run = nkisim.run(
                nkisim.Kernel(self.func)[self.grid],
                *args,
                machine=self.nki.target,
                lnc=self.nki.lnc,
                rules=("strict", *switched),
            )
        call = Call(self, args)
        struck = [failure.strikes(call, run) for failure in failures if failure.strikes]
        if any(struck):
            return spoiled(run.outputs)
        return run.outputs


def is_tensor(one):
    return isinstance(one, np.ndarray) or hasattr(one, "data_ptr")


def require_kind(one):
    assert not isinstance(one, list), "a list is one value for each rank"
    if isinstance(one, tuple):
        for part in one:
            assert not is_tensor(part), "a tensor inside of a tuple"
            require_kind(part)
    elif isinstance(one, np.ndarray):
        assert one.dtype.itemsize <= 4, f"an array of {one.dtype}"
        assert one.flags.c_contiguous, "an array that is not contiguous"
    elif not is_tensor(one):
        assert isinstance(one, (*PLAIN, NKIObject)), f"an argument of type {type(one)}"


def spoiled(outputs):
    """Results with a wrong last value."""
    if isinstance(outputs, tuple):
        return tuple(spoiled(one) for one in outputs)
    wrong = outputs.copy() if isinstance(outputs, np.ndarray) else outputs.clone()
    wrong.reshape(-1)[-1] += 64
    return wrong
