"""Matrix products of a transformer: before attention, after it, and the two of an MLP."""

import ml_dtypes
import numpy as np
import pytest

from nki_library import Case, Tolerance, bfloat16, wide, widened
from nkisim.errors import NkiValidationError

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

FP8_LARGEST = 240.0  # of float8_e4m3


def projection_inputs(library, rng, sizes, quantised, *, bias):
    batch, heads, tokens, d_head, hidden = sizes
    kinds = library.module("core.utils.common_types").QuantizationType
    attention = rng.uniform(-1, 1, (d_head, batch, heads, tokens)).astype(bfloat16)
    weight = rng.uniform(-1, 1, (heads * d_head, hidden)).astype(np.float32)
    inputs = {"attention": attention, "quantization_type": kinds[quantised]}
    inputs["bias"] = rng.normal(0, 100, (1, hidden)).astype(bfloat16) if bias else None
    if quantised == "NONE":
        return inputs | {"weight": weight.astype(bfloat16)}
    largest = np.abs(weight).max(axis=0 if quantised == "ROW" else None, keepdims=True)
    scale = largest / FP8_LARGEST
    inputs["weight"] = (weight / scale).astype(ml_dtypes.float8_e4m3)
    inputs["weight_scale"] = np.broadcast_to(scale, (128, scale.shape[1])).copy()
    if quantised == "STATIC":
        inputs["input_scale"] = np.full((128, 1), 1 / FP8_LARGEST, np.float32)
    return inputs


def projection_kernel(library):
    return library.module("core.output_projection.output_projection_tkg").output_projection_tkg


# The library's test_output_proj_tkg.py: rtol 2e-2, or 5e-2 with fp8 weights; atol 1e-5.
@pytest.mark.parametrize(
    ("cores", "sizes", "quantised", "bias", "transposed"),
    [
        (1, (4, 2, 4, 64, 1024), "NONE", True, False),
        (2, (4, 8, 4, 64, 1024), "NONE", False, False),
        (2, (32, 8, 4, 32, 1024), "NONE", True, True),
        (2, (32, 4, 4, 128, 1024), "STATIC", True, True),
        (1, (32, 6, 3, 128, 512), "STATIC", False, False),
        (2, (32, 6, 3, 128, 512), "STATIC", False, False),
        (1, (16, 4, 1, 128, 1024), "ROW", True, False),
        (2, (128, 4, 1, 128, 1024), "ROW", True, True),
    ],
)
def test_output_projection_tkg(library, rng, cores, sizes, quantised, bias, transposed):
    inputs = projection_inputs(library, rng, sizes, quantised, bias=bias)
    inputs["TRANSPOSE_OUT"] = transposed
    module = library.module("core.output_projection.output_projection_tkg_torch")
    library.check(
        "core/output_projection/output_projection_tkg",
        projection_kernel(library),
        Case(inputs, Tolerance(2e-2 if quantised == "NONE" else 5e-2, 1e-5), cores),
        module.output_projection_tkg_torch_ref(**widened(inputs)),
    )


# The library's test_output_proj_cte.py: rtol 2e-2, atol 1e-5.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "bias"),
    [((1, 2, 128, 256, 1024), True), ((1, 16, 10, 128, 512), True), ((2, 3, 64, 192, 768), False)],
)
def test_output_projection_cte(library, rng, sizes, bias, cores):
    batch, heads, d_head, tokens, hidden = sizes
    inputs = {
        "attention": rng.random((batch, heads, d_head, tokens)).astype(bfloat16),
        "weight": rng.random((heads * d_head, hidden)).astype(bfloat16),
        "bias": rng.normal(0, 100, (1, hidden)).astype(bfloat16) if bias else None,
    }
    package = "core.output_projection.output_projection_cte"
    module = library.module(f"{package}.output_projection_cte_torch")
    library.check(
        "core/output_projection/output_projection_cte",
        library.module(f"{package}.output_projection_cte").output_projection_cte,
        Case(inputs, Tolerance(2e-2, 1e-5), cores),
        module.output_projection_cte_torch_ref(**widened(inputs)),
    )


# The library's test_qkv_cte.py and test_qkv_tkg.py: rtol 2e-2, atol 1e-5. Few tokens go to qkv_tkg.
@pytest.mark.parametrize(
    ("cores", "shape", "columns", "norm", "racy"),
    [
        (1, (1, 256, 512), 384, "NO_NORM", False),
        (1, (4, 4, 512), 768, "RMS_NORM", False),
        (2, (4, 4, 512), 768, "RMS_NORM", True),
        (2, (4, 4, 1024), 768, "NO_NORM", True),
    ],
)
def test_qkv(library, rng, numbered_enum, cores, shape, columns, norm, racy):
    numbered_enum(library)
    kind = library.module("core.utils.common_types").NormType[norm]
    gamma = rng.standard_normal((1, shape[-1])).astype(bfloat16) if norm == "RMS_NORM" else None
    inputs = {
        "input": rng.standard_normal(shape).astype(bfloat16),
        "fused_qkv_weights": scaled_weight(rng, shape[-1], columns),
        "fused_norm_type": kind,
        "gamma_norm_weights": gamma,
    }
    reference = library.module("core.qkv.qkv_tkg_torch").qkv_tkg_torch_ref
    tensors = (wide(inputs[name]) for name in ("input", "fused_qkv_weights", "gamma_norm_weights"))
    note = (
        "one constant (_DGE_MODE_NONE = 3) replaced by nisa.dge_mode.none"
        if gamma is not None
        else ""
    )
    library.check(
        "core/qkv/qkv",
        library.module("core.qkv.qkv").qkv,
        Case(inputs, Tolerance(2e-2, 1e-5), cores, note, racy=racy),
        reference(*tensors, norm_type=kind)["out"],
    )


def scaled_weight(rng, rows, columns):
    return (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(bfloat16)


# The library's test_qkv_cte.py: rtol 2e-2, atol 1e-5 unless quantised. Its reference needs packages
# that are not public; here it is torch's own product.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "columns", "bias", "by_dma"),
    [((1, 256, 512), 384, False, True), ((2, 128, 1024), 512, True, False)],
)
def test_qkv_cte(library, rng, shape, columns, bias, by_dma, cores):
    inputs = {
        "input": rng.standard_normal(shape).astype(bfloat16),
        "fused_qkv_weights": scaled_weight(rng, shape[-1], columns),
        "load_input_with_DMA_transpose": by_dma,
        "bias": rng.standard_normal((1, columns)).astype(bfloat16) if bias else None,
    }
    expected = wide(inputs["input"]) @ wide(inputs["fused_qkv_weights"])
    library.check(
        "core/qkv/qkv_cte",
        library.module("core.qkv.qkv_cte").qkv_cte,
        Case(inputs, Tolerance(2e-2, 1e-5), cores, "reference: torch.matmul"),
        expected + wide(inputs["bias"]) if bias else expected,
    )


def test_qkv_cte_with_a_norm(library, rng):
    """Before its norm it wants only a row's sum of squares, and writes the squares to one place."""
    gamma = rng.standard_normal((1, 512)).astype(bfloat16)
    inputs = {
        "input": rng.standard_normal((1, 256, 512)).astype(bfloat16),
        "fused_qkv_weights": scaled_weight(rng, 512, 384),
        "fused_norm_type": library.module("core.utils.common_types").NormType.RMS_NORM,
        "gamma_norm_weights": gamma,
    }
    x = wide(inputs["input"])
    normed = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * wide(gamma)
    library.check(
        "core/qkv/qkv_cte (with RMS norm)",
        library.module("core.qkv.qkv_cte").qkv_cte,
        Case(inputs, Tolerance(2e-2, 1e-5), 1, "reference: torch.matmul after an RMS norm"),
        normed @ wide(inputs["fused_qkv_weights"]),
    )


def mlp_kernel(library):
    """What core/mlp/mlp.py does for long sequences; at commit d2ad3a5 that file does not parse."""
    import nki.language as nl

    parameters = library.module("core.mlp.mlp_parameters")
    mlp_cte = library.module("core.mlp.mlp_cte.mlp_cte").mlp_cte

    def mlp(**tensors):
        mlp_params = parameters.MLPParameters(**tensors)
        parameters.validate_mlp_arguments(mlp_params)
        hidden = tensors["hidden_tensor"]
        out = nl.ndarray(hidden.shape, dtype=hidden.dtype, buffer=nl.shared_hbm)
        mlp_cte(mlp_params, out, None)
        return out

    return mlp


# The library's test_mlp_cte.py: rtol 2e-2. Its reference is not importable; here torch's own.
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "inner", "norm"), [((1, 256, 512), 512, False), ((1, 256, 512), 640, True)]
)
def test_mlp_cte(library, rng, shape, inner, norm, cores):
    import torch

    hidden = shape[-1]
    kinds = library.module("core.utils.common_types").NormType
    inputs = {
        "hidden_tensor": rng.standard_normal(shape).astype(bfloat16),
        "gate_proj_weights_tensor": scaled_weight(rng, hidden, inner),
        "up_proj_weights_tensor": scaled_weight(rng, hidden, inner),
        "down_proj_weights_tensor": scaled_weight(rng, inner, hidden),
        "normalization_type": kinds.RMS_NORM if norm else kinds.NO_NORM,
        "normalization_weights_tensor": (
            rng.standard_normal((1, hidden)).astype(bfloat16) if norm else None
        ),
    }
    x, gate, up, down, _, weight = widened(inputs).values()
    if norm:
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight
    library.check(
        "core/mlp/mlp_cte",
        mlp_kernel(library),
        Case(inputs, Tolerance(2e-2, 1e-5), cores, "mlp_cte in a kernel of the test; torch.matmul"),
        (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down,
    )


def test_a_view_outside_its_tile_is_refused_even_if_nothing_uses_it(library, rng):
    """Few tokens and a transposed result: it makes views past the weights, and then skips them."""
    inputs = projection_inputs(library, rng, (4, 8, 4, 32, 512), "NONE", bias=True)
    case = Case(inputs | {"TRANSPOSE_OUT": True}, cores=2)
    with pytest.raises(NkiValidationError, match="ap: pattern"):
        library.run(projection_kernel(library), case)
    why = "makes .ap views past the end of a tile, which it never uses"
    name = "core/output_projection/output_projection_tkg (few tokens, transposed)"
    library.note_refusal(name, case, why)
