"""Modules that nki-library imports and that are not public, as far as its references need them."""

import enum
import sys
from types import ModuleType

import ml_dtypes
import numpy as np

_TESTS = "test.integration.nkilib"  # the library's references import from its tests
MOE_TESTS = f"{_TESTS}.core.moe.moe_cte.test_moe_cte_common"
NORM_TESTS = f"{_TESTS}.utils.test_kernel_common"
FP4_WORDS = np.dtype([("float4_e2m1fn_x4", "<u2")])  # references look for the word in str(dtype)
_PACKED = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
}


class BWMMFunc(enum.Enum):
    """Which blockwise kernel a reference stands for; it asks for the first two only."""

    SHARD_ON_BLOCK = 0
    SHARD_ON_INTERMEDIATE_DROPPING = 1
    ANOTHER = 2


def static_cast(array, dtype):
    """neuron_dtypes.static_cast: to a NumPy type, or packed by four."""
    if dtype not in _PACKED:
        return np.asarray(array).astype(dtype)
    codes = np.asarray(array, np.float32).astype(_PACKED[dtype]).view(np.uint8)
    return np.ascontiguousarray(codes.reshape(*codes.shape[:-1], -1, 4)).view("<u4")[..., 0]


def quantize_to_mx(data, dtype):
    """What nisa.quantize_mx does since NKI 0.5; the library's own follows an older rule.

    A group of 8 x 4 elements has the scale 2^(floor(log2 of its largest) - (Emax - 1)), with Emax 8
    for float8_e4m3fn and 15 for float8_e5m2; it is stored with 127 added.
    """
    emax = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}[dtype]
    values = np.asarray(data).astype(ml_dtypes.bfloat16).astype(np.float32)  # what kernels quantise
    rows, columns = values.shape
    largest = np.abs(values).reshape(rows // 8, 8, columns // 4, 4).max(axis=(1, 3))
    exponent = np.where(largest > 0, np.frexp(largest)[1] - 1 - (emax - 1), -127)
    shift = np.repeat(np.repeat(exponent, 8, axis=0), 4, axis=1)
    return static_cast(np.ldexp(values, -shift), dtype), (exponent + 127).astype(np.uint8)


def norms(kinds):
    """Norms by the library's NormType, as its qkv reference calls them."""
    import torch

    def rms(x, weight=None, eps=1e-6, norm_b=None, hidden_actual=None):
        size = hidden_actual or x.shape[-1]
        scaled = x / torch.sqrt((x * x).sum(-1, keepdim=True) / size + eps)
        return scaled if weight is None else scaled * weight

    def unchanged(x, *_, **__):
        return x

    return {kinds.NO_NORM: unchanged, kinds.RMS_NORM: rms}


def modules():
    """Stand-ins by module name; `NORM_TESTS` gets its norms when the library can be imported."""
    parts = {name.rpartition(".")[0] for name in (MOE_TESTS, NORM_TESTS)}
    names = {"neuronxcc", "neuronxcc.nki", "neuronxcc.nki.typing", "neuron_dtypes", "test"}
    names |= {MOE_TESTS, NORM_TESTS}
    for part in parts:
        words = part.split(".")
        names |= {".".join(words[:count]) for count in range(1, len(words) + 1)}
    made = {name: ModuleType(name) for name in names}
    made["neuronxcc.nki.typing"].mutable_tensor = object
    made["neuron_dtypes"].static_cast = static_cast
    made[MOE_TESTS].BWMMFunc = BWMMFunc
    return made


def give_norms(library):
    """Let the reference of qkv find its norms."""
    kinds = library.module("core.utils.common_types").NormType
    sys.modules[NORM_TESTS].norm_name2func_torch = norms(kinds)
