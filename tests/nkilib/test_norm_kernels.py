"""Normalisation: RMS norm with fp8 quantisation, and the norms of the token generation kernels."""

import ml_dtypes
import numpy as np
import pytest

from nki_library import Case, Tolerance, bfloat16, widened
from nkisim.errors import NkiValidationError

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

FP8_LARGEST = 240.0  # of float8_e4m3
EPSILON = 1e-6


def rms_norm(hidden, weight):
    root = np.sqrt(np.mean(np.square(hidden), axis=-1, keepdims=True))
    return hidden / (root + EPSILON) * weight


def row_quantised(values, clip):
    """fp8 rows scaled to use the whole range, and the fp32 scale of each row."""
    largest = np.abs(values).max(axis=-1, keepdims=True)
    if clip > 0:
        largest, values = np.minimum(largest, clip), np.clip(values, -clip, clip)
    scale = (largest / FP8_LARGEST).astype(np.float32)
    return (values / scale).astype(ml_dtypes.float8_e4m3), scale


def split_rows(outputs):
    """A quantised row carries the four bytes of its scale at its end."""
    (rows,) = outputs
    scale = np.ascontiguousarray(rows[..., -4:]).view(np.float32)
    return [rows[..., :-4], scale]


# The library's test_rmsnorm_quant.py: rtol 0.072 for the fp8 values (16 / 240, one step of the type
# at its largest value, and a little) and 0.007 for the scales. Its reference is NumPy there too.
@pytest.mark.parametrize(
    ("cores", "shape", "normalised", "clip", "dtype"),
    [
        (1, (1, 128, 2048), True, 0.0, np.float16),
        (1, (1, 128, 1024), True, 0.5, np.float16),
        (2, (1, 160, 1024), True, 0.0, bfloat16),
        (2, (1, 2, 2048), True, 0.5, bfloat16),
        (2, (1, 2, 2048), False, 0.0, bfloat16),
    ],
)
def test_rmsnorm_row_quantised(library, rng, cores, shape, normalised, clip, dtype):
    inputs = rmsnorm_quant_inputs(library, rng, shape, cores, dtype)
    inputs["kargs"] = quantisation(library, "ROW", normalised=normalised, clip=clip)
    inputs["input_dequant_scale"] = None
    hidden = inputs["hidden"].astype(np.float32)
    norm = rms_norm(hidden, inputs["ln_w"].astype(np.float32)) if normalised else hidden
    values, scale = row_quantised(norm, clip)
    kernel = library.module("core.rmsnorm.rmsnorm_quant").rmsnorm_quant_kernel
    for output, expected, rtol in ((0, values, 0.072), (1, scale, 0.007)):
        case = Case(
            inputs,
            Tolerance(rtol, 1e-8),
            cores,
            convert_output=lambda outputs, which=output: [split_rows(outputs)[which]],
        )
        library.check("core/rmsnorm/rmsnorm_quant", kernel, case, expected)


# With a given scale the rows do not reach 240, and 0.072 of the largest value may be less than one
# step. A step is at most 2**-3 of a value: float8_e4m3 has 3 bits of mantissa.
@pytest.mark.parametrize(
    ("cores", "shape", "normalised"),
    [(1, (1, 130, 1024), True), (2, (1, 160, 1024), True), (2, (1, 2, 2048), False)],
)
def test_rmsnorm_static_quantised(library, rng, cores, shape, normalised):
    inputs = rmsnorm_quant_inputs(library, rng, shape, cores, bfloat16)
    inputs["kargs"] = quantisation(library, "STATIC", normalised=normalised, clip=0.0)
    inputs["input_dequant_scale"] = np.full((128, 1), 0.47, np.float32)
    hidden = inputs["hidden"].astype(np.float32)
    norm = rms_norm(hidden, inputs["ln_w"].astype(np.float32)) if normalised else hidden
    scaled = np.clip(norm / np.float32(0.47), -FP8_LARGEST, FP8_LARGEST)
    library.check(
        "core/rmsnorm/rmsnorm_quant",
        library.module("core.rmsnorm.rmsnorm_quant").rmsnorm_quant_kernel,
        Case(inputs, Tolerance(2**-3, 0.0), cores),
        scaled.astype(ml_dtypes.float8_e4m3),
    )


def rmsnorm_quant_inputs(library, rng, shape, cores, dtype):
    weight = rng.standard_normal((1, shape[-1]) if cores > 1 else shape[-1:])
    return {"hidden": rng.standard_normal(shape).astype(dtype), "ln_w": weight.astype(dtype)}


def quantisation(library, kind, *, normalised, clip):
    types = library.module("core.utils.common_types")
    return library.module("core.rmsnorm.rmsnorm_quant").RmsNormQuantKernelArgs(
        quantization_type=types.QuantizationType[kind],
        lower_bound=clip,
        norm_type=types.NormType.RMS_NORM if normalised else types.NormType.NO_NORM,
        eps=EPSILON,
    )


# The library's test_rmsnorm_tkg.py and test_layernorm_tkg.py: rtol 2e-2, atol 1e-5.
TOKEN_TOLERANCE = Tolerance(2e-2, 1e-5)
# The file writes the enum member as the number 3, which NKI takes no longer since 0.3.
AS_A_NUMBER = "one constant (_DGE_MODE_NONE = 3) replaced by nisa.dge_mode.none"


@pytest.fixture
def static_dma(library, monkeypatch):
    import nki.isa as nisa

    module = library.module("core.subkernels.norm_tkg_utils")
    monkeypatch.setattr(module, "_DGE_MODE_NONE", nisa.dge_mode.none)


def token_inputs(rng, shape, dtype):
    batch, length, hidden = shape
    return {
        "input": rng.standard_normal(shape).astype(dtype),
        "gamma": rng.standard_normal((1, hidden)).astype(dtype),
        "output": np.zeros((128, batch * length, hidden // 128), dtype),
    }


@pytest.mark.usefixtures("static_dma")
@pytest.mark.parametrize(
    ("cores", "shape", "actual", "transposed", "shard_hidden"),
    [
        (1, (1, 8, 2048), None, False, False),
        (1, (1, 4, 2048), 1920, False, False),
        (2, (2, 8, 2048), None, False, False),
        (2, (128, 3, 512), None, False, False),
        (2, (2, 8, 3072), 2880, True, False),
        (2, (4, 1, 1280), None, False, True),
    ],
)
def test_rmsnorm_tkg(library, rng, cores, shape, actual, transposed, shard_hidden):
    inputs = token_inputs(rng, shape, np.float16)
    inputs |= {"hidden_actual": actual, "hidden_dim_tp": transposed, "shard_on_h": shard_hidden}
    module = library.module("core.subkernels.rmsnorm_torch")
    one_core = cores == 1 or transposed
    reference = module.rmsnorm_tkg_torch_ref_lnc1 if one_core else module.rmsnorm_tkg_torch_ref
    library.check(
        "core/subkernels/rmsnorm_tkg",
        library.module("core.subkernels.rmsnorm_tkg").rmsnorm_tkg,
        Case(inputs, TOKEN_TOLERANCE, cores, AS_A_NUMBER),
        reference(**widened(inputs)),
    )


@pytest.mark.usefixtures("static_dma")
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32])
@pytest.mark.parametrize(
    ("cores", "shape", "shard_hidden"),
    [
        (1, (1, 8, 2048), False),
        (2, (2, 8, 2048), False),
        (2, (128, 3, 512), False),
        (2, (4, 1, 1280), True),
    ],
)
def test_layernorm_tkg(library, rng, cores, shape, shard_hidden, dtype):
    inputs = token_inputs(rng, shape, dtype)
    inputs |= {
        "beta": rng.standard_normal((1, shape[-1])).astype(dtype),
        "shard_on_h": shard_hidden,
    }
    module = library.module("core.subkernels.layernorm_torch")
    one_core = module.layernorm_tkg_torch_ref_lnc1
    reference = one_core if cores == 1 else module.layernorm_tkg_torch_ref
    library.check(
        "core/subkernels/layernorm_tkg",
        library.module("core.subkernels.layernorm_tkg").layernorm_tkg,
        Case(inputs, TOKEN_TOLERANCE, cores, AS_A_NUMBER),
        reference(**widened(inputs)),
    )


@pytest.mark.parametrize("kernel", ["rmsnorm_tkg", "layernorm_tkg"])
def test_a_number_for_an_enum_member_is_refused(library, rng, kernel):
    case = Case(token_inputs(rng, (1, 8, 2048), np.float16))
    function = getattr(library.module(f"core.subkernels.{kernel}"), kernel)
    with pytest.raises(NkiValidationError, match="dge_mode=3"):
        library.run(function, case)
    name = f"core/subkernels/{kernel} (as shipped)"
    library.note_refusal(name, case, "dma_copy(dge_mode=3), a number where NKI wants the member")
