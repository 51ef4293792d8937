"""Norms as ops of torch.library, on the kernels of `trnconv.fused_ops`.

    y = normed(x, gamma, beta, call)          [N, C, T, H, W] -> the same, one or two launches
    f = group_factors(x, gamma, beta, call)   what a convolution's start takes instead
    y = modulated(x, scale, shift, f, call)   the norm by such factors, times a video, plus another

The norm has a gradient (`norm_gradient.py`); the others have none. None
of them is on the torch backend: there a model's own operators are what is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from nkisim.machine import Machine
from trnconv.fused_ops.group_norm import problem as group_norm
from trnconv.fused_ops.group_norm.problem import GroupNorm
from trnconv.fused_ops.launch import FusedOpLaunch
from trnconv.fused_ops.modulation import problem as modulation
from trnconv.fused_ops.modulation.problem import Modulation
from trnconv.fused_ops.rms_norm import problem as rms_norm
from trnconv.fused_ops.rms_norm.problem import RmsNorm
from trnconv.problem.prologue import FACTORS
from trnconv.pytorch.backends.arrays import Array, dtype_name, to_array, to_tensor
from trnconv.pytorch.backends.choice import HasDevice
from trnconv.pytorch.backends.kernel_place import (
    DevicePlace,
    SimulatedPlace,
    kernel_place,
    runs_kernels,
)
from trnconv.pytorch.backends.packed_weights import Images, kept_tables, packed_once
from trnconv.pytorch.operators import norm_gradient
from trnconv.pytorch.operators.norm_call import (
    ModulationCall,
    NormCall,
    flat,
    worded_modulation,
    worded_norm,
)

Tensor = torch.Tensor
NORM_OP: Final = "trnconv::norm"
FACTORS_OP: Final = "trnconv::group_factors"
MODULATION_OP: Final = "trnconv::modulation"


@torch.library.custom_op(NORM_OP, mutates_args=())
def norm_op(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, words: str, backend: str
) -> Tensor:
    """act(factor * gamma_c * normed x + beta_c); `words` are those of a NormCall."""
    call = worded_norm(words)
    place = _place(x, backend)
    problem = call.problem(tuple(x.shape), dtype_name(x), has_beta=beta is not None)
    packing = _NormPacking(call, problem, gamma, beta, place)
    y = packing.launched(x.contiguous().reshape(flat(tuple(x.shape))))
    return y.reshape(call.shape(tuple(x.shape)))


@torch.library.custom_op(FACTORS_OP, mutates_args=())
def factors_op(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, words: str, backend: str
) -> Tensor:
    """Scales and shifts [C, 2] that are the group norm of x [1, C, T, H, W], of its statistics.

    Where x is too large for one launch, groups are done one after the other.
    """
    call, place = worded_norm(words), _place(x, backend)
    problem = call.problem(tuple(x.shape), dtype_name(x), has_beta=beta is not None)
    assert isinstance(problem, GroupNorm)
    rows = x.contiguous().reshape(flat(tuple(x.shape)))
    factors, first = [], 0
    for part in problem.in_launches():
        own = slice(first, first + part.channels)
        own_gamma = None if gamma is None else gamma[own]
        own_beta = None if beta is None else beta[own]
        packing = _NormPacking(call, part, own_gamma, own_beta, place, factors=True)
        factors.append(packing.launched(rows[:, own]))
        first += part.channels
    return factors[0] if len(factors) == 1 else torch.cat(factors)


@torch.library.custom_op(MODULATION_OP, mutates_args=())
def modulation_op(
    x: Tensor, scale: Tensor, shift: Tensor, factors: Tensor, words: str, backend: str
) -> Tensor:
    """act((a_c x + b_c) * scale + shift); `words` are those of a ModulationCall."""
    place = _place(x, backend)
    problem = worded_modulation(words).problem(tuple(x.shape), dtype_name(x))
    launch = modulation.launch_of(problem, place.machine, place.cores)
    tensors = (*(tensor.contiguous()[0] for tensor in (x, scale, shift)), factors.contiguous())
    return place.launch(launch, tensors).reshape(x.shape)


@modulation_op.register_fake
def _(x: Tensor, *rest: object) -> Tensor:
    del rest
    return x.new_empty(x.shape)


def modulated(
    x: Tensor, low: tuple[Tensor, Tensor], factors: Tensor, call: ModulationCall, backend: str
) -> Tensor:
    """x [1, C, T, H, W] by factors, times low[0], plus low[1], each [1, C, T', H', W']."""
    y: Tensor = modulation_op(x, *low, factors, call.words(), backend)
    return y


def modulation_refusal(x: _Sized, call: ModulationCall, backend: str) -> str:
    """Why no kernel does it, in words; empty if one does."""
    return _refusal(x, call.problem(x.sizes, dtype_name(x)), backend)


@factors_op.register_fake
def _(x: Tensor, *rest: object) -> Tensor:
    del rest
    return x.new_empty((x.shape[1], FACTORS), dtype=torch.float32)


def group_factors(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, call: NormCall, backend: str = "auto"
) -> Tensor:
    """What a convolution's start takes for a group norm of x [1, C, T, H, W]."""
    factors: Tensor = factors_op(x, gamma, beta, call.words(), backend)
    return factors


@norm_op.register_fake
def _(x: Tensor, gamma: object, beta: object, words: str, backend: object) -> Tensor:
    del gamma, beta, backend
    return x.new_empty(worded_norm(words).shape(tuple(x.shape)))


norm_op.register_autograd(norm_gradient.backward, setup_context=norm_gradient.save_inputs)


def normed(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, call: NormCall, backend: str = "auto"
) -> Tensor:
    """The norm of x [N, C, T, H, W], gamma and beta of as many elements as there are channels."""
    y: Tensor = norm_op(x, gamma, beta, call.words(), backend)
    return y


def refusal(x: _Sized, call: NormCall, backend: str, *, has_beta: bool) -> str:
    """Why no kernel does it, in words; empty if one does. Of x, sizes and device are enough."""
    return _refusal(x, _problem(x, call, has_beta=has_beta), backend)


def factors_refusal(x: _Sized, call: NormCall, backend: str, *, has_beta: bool) -> str:
    """The same of the factors of a group norm."""
    problem = _problem(x, call, has_beta=has_beta)
    assert isinstance(problem, GroupNorm)
    return next(filter(None, (_refusal(x, part, backend) for part in problem.in_launches())), "")


def _problem(x: _Sized, call: NormCall, *, has_beta: bool) -> RmsNorm | GroupNorm:
    return call.problem(x.sizes, dtype_name(x), has_beta=has_beta)


def _refusal(x: _Sized, problem: RmsNorm | GroupNorm | Modulation, backend: str) -> str:
    if not runs_kernels(x, backend):
        return "the torch backend has the model's own operators"
    place = _place(x, backend)
    return problem.refuses(place.machine, place.cores)


def place_of(x: HasDevice, backend: str) -> tuple[Machine, int]:
    """The machine that runs kernels for x, and the cores of a launch."""
    place = _place(x, backend)
    return place.machine, place.cores


class _Sized(HasDevice, Protocol):
    """Five sizes, a type and a device."""

    @property
    def sizes(self) -> tuple[int, int, int, int, int]: ...

    @property
    def dtype(self) -> torch.dtype: ...


def _place(x: HasDevice, backend: str) -> SimulatedPlace | DevicePlace:
    return kernel_place(x, backend, "a norm")


@dataclass(frozen=True)
class _NormPacking:
    """What a kernel is called with besides x."""

    call: NormCall
    problem: RmsNorm | GroupNorm
    gamma: Tensor | None
    beta: Tensor | None
    place: SimulatedPlace | DevicePlace
    factors: bool = False  # scales and shifts alone, of a group norm

    def launched(self, x: Tensor) -> Tensor:
        """One launch, or statistics and then another.

        On a device, constants stay there while gamma and beta are the same.
        """
        if isinstance(self.place, DevicePlace):
            statistics, main = self.launches(constants=False)
            constants = self.kept(x.device)
            before = () if statistics is None else (self.place.call(statistics, (x,)),)
            tensors = before if self.factors else (x, *before)
            return self.place.call(main, (*tensors, *constants))
        statistics, main = self.launches()
        between = () if statistics is None else (self.place.launch(statistics, (x,)),)
        return self.place.launch(main, between if self.factors else (x, *between))

    def launches(self, *, constants: bool = True) -> tuple[FusedOpLaunch | None, FusedOpLaunch]:
        """Statistics, if they are a launch of their own, and the norm; without constants, zeros."""
        machine, cores = self.place.machine, self.place.cores
        gamma, beta = self.call.factors(
            self.problem.channels,
            _on_host(self.gamma) if constants else None,
            _on_host(self.beta) if constants else None,
        )
        if isinstance(self.problem, GroupNorm):
            assert beta is not None
            second = group_norm.scale_shift_launch if self.factors else group_norm.apply_launch
            return (
                group_norm.statistics_launch(self.problem, machine, cores),
                second(self.problem, gamma, beta, machine, cores),
            )
        return None, rms_norm.launch_of(self.problem, gamma, beta, machine, cores)

    def pack(self) -> tuple[Images, None]:
        """Constants on the device, packed on the host."""
        assert isinstance(self.place, DevicePlace)
        self.place.adapter.wait()
        device = None if self.gamma is None else self.gamma.device
        packed = self.launches()[1].arguments[:-1]
        return tuple(to_tensor(array).to(device) for array in packed), None

    def rebias(self, images: Images, kept: Any) -> Images | None:
        """All is packed again: it is small."""
        del images, kept
        return None

    def kept(self, device: torch.device) -> Images:
        """Constants on the device, packed again when gamma or beta has changed."""
        use = (self.call, self.problem, self.place.machine, self.place.cores, device, self.factors)
        if self.gamma is not None:
            return packed_once((self.gamma, self.beta), use, self)
        return kept_tables(use, lambda: tuple(image.to(device) for image in self.pack()[0]))


def _on_host(tensor: Tensor | None) -> Array | None:
    return None if tensor is None else to_array(tensor.float().cpu())
