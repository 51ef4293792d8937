"""`python -m benchmarks networks`: lists that agree with what was published, no shape refused."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks import networks
from benchmarks.__main__ import main
from benchmarks.image_networks import NETWORKS
from nkisim.machine import TRN2
from trnconv.errors import UnsupportedError
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.pricing import price

# What was published elsewhere, none of it from these lists. Parameters of ResNet-50: 25,557,032 in
# all, less 2,049,000 of the linear layer and 53,120 of batch norms (torchvision's model card).
RESNET_WEIGHTS = 25_557_032 - 2_049_000 - 53_120
RESNET_GMACS = 4.09  # the same card, with the linear layer's 0.002
DETECTOR_GFLOPS, DETECTOR_PARAMETERS = 26.8, 9.0e6  # arXiv:2107.08430, table 3: YOLOX-S
MOBILE_GMACS = 0.300  # arXiv:1801.04381, table 4
HEAD_WEIGHTS = 34.0e6 - RESNET_WEIGHTS  # arXiv:1804.06208, table 2: 34.0 M with its ResNet-50
COUNTS = {"resnet-50": 53, "sdxl-unet": 51, "mobilenet-v2": 52, "deconvolution-head": 4}
CASES = [(name, batch) for name in NETWORKS for batch in networks.BATCHES.get(name, networks.MANY)]


def inline(work, layers):
    return map(work, layers)


def test_the_residual_network_has_the_published_weights_and_work():
    network = NETWORKS["resnet-50"]()
    assert network.weights == RESNET_WEIGHTS
    assert network.macs / 1e9 == pytest.approx(RESNET_GMACS, abs=0.005)


def test_the_detector_has_the_published_weights_and_work():
    """Published figures count biases and norms as well: less than 1 % of either."""
    network = NETWORKS["detector"]()
    assert 2 * network.macs / 1e9 == pytest.approx(DETECTOR_GFLOPS, rel=0.01)
    assert network.weights == pytest.approx(DETECTOR_PARAMETERS, rel=0.01)


def test_the_mobile_network_has_the_published_work():
    """With its linear layer of 1280 x 1000."""
    macs = NETWORKS["mobilenet-v2"]().macs + 1280 * 1000
    assert macs / 1e9 == pytest.approx(MOBILE_GMACS, rel=0.005)


def test_the_head_has_the_published_weights():
    """Published to a tenth of a million, with some thousands of norms and biases."""
    assert NETWORKS["deconvolution-head"]().weights == pytest.approx(HEAD_WEIGHTS, abs=0.1e6)


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_number_of_convolutions(name, count):
    assert len(NETWORKS[name]().layers) == count


@pytest.mark.diffusers
def test_the_unet_is_that_of_diffusers():
    """Every convolution of the module, with the public configuration of SDXL's base model."""
    import torch
    from diffusers import UNet2DConditionModel

    crossed, plain = "CrossAttn{}Block2D", "{}Block2D"
    with torch.device("meta"):
        model = UNet2DConditionModel(
            sample_size=128,
            block_out_channels=(320, 640, 1280),
            down_block_types=(plain.format("Down"), *2 * (crossed.format("Down"),)),
            up_block_types=(*2 * (crossed.format("Up"),), plain.format("Up")),
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=(5, 10, 20),
            cross_attention_dim=2048,
            use_linear_projection=True,
        )
        seen = Counter()
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.register_forward_hook(
                    lambda conv, _, y: seen.update([(*conv.weight.shape, *y.shape[2:])])
                )
        model(torch.zeros(1, 4, 128, 128), 1, torch.zeros(1, 77, 2048))
    ours = Counter(
        (shape.c_out, shape.c_in, *shape.kernel[1:], *shape.out_sizes()[1:])
        for shape in (layer.shape for layer in NETWORKS["sdxl-unet"]().layers)
    )
    assert ours == seen


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), CASES)
def test_every_layer_has_a_plan_and_a_price(name, batch):
    row = networks.row_of(NETWORKS[name](batch), 2, inline)
    assert [layer.refusal for layer in row.layers if layer.refusal] == []
    assert all(layer.ns > 0 and layer.bound for layer in row.layers)
    assert row.calls == len(NETWORKS[name](batch).layers)


KINDS = {layer.kind: layer for make in NETWORKS.values() for layer in make().layers}


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_of_each_kind_has_a_price(kind):
    """The same by default: the smallest layers, which stand last."""
    layer = KINDS[kind]
    found = price(ConvProblem(layer.shape, TRN2, "bfloat16", epilogue=layer.epilogue), cores=2)
    assert found.ns > found.executed_macs / networks.peak_macs_per_ns(2)
    assert found.launches == 1


@pytest.mark.torch
def test_patched_layers_are_taken():
    """A module of each kind, as torch calls it: none is kept."""
    import torch

    from trnconv.pytorch.estimate import run_on_meta

    with torch.device("meta"):
        modules = torch.nn.ModuleList(module_of(torch, layer) for layer in KINDS.values())
        inputs = [
            torch.zeros(layer.shape.batch, layer.shape.c_in, *layer.shape.size[1:])
            for layer in KINDS.values()
        ]

    def call(model):
        for module, x in zip(model, inputs, strict=True):
            module(x)

    report = run_on_meta(modules, call).report
    assert len(report.patched) == len(KINDS)
    assert list(report.left_to_torch) == []


def module_of(torch, layer):
    shape = layer.shape
    how = {"stride": shape.stride[1:], "groups": shape.groups}
    before = shape.pad_before[1:]
    if layer.kind.endswith("transposed"):
        return torch.nn.ConvTranspose2d(
            shape.c_in, shape.c_out, shape.kernel[1:], padding=before, **how
        )
    conv = torch.nn.Conv2d(shape.c_in, shape.c_out, shape.kernel[1:], padding=before, **how)
    if layer.kind.endswith("upsampled"):
        return torch.nn.Sequential(torch.nn.Upsample(scale_factor=2), conv)
    return conv


def test_a_refusal_is_reported_with_its_reason(monkeypatch):
    def refuse(problem, **_):
        raise UnsupportedError(f"{problem.shape.kernel}: not today.")

    monkeypatch.setattr(networks, "price", refuse)
    row = networks.row_of(NETWORKS["deconvolution-head"](), 2, inline)
    assert row.refused == row.calls == 4
    assert networks.last_line([row]) == "1 networks, 0 convolutions planned, 4 refused"
    assert networks.refusals([row])[-1] == (
        "refused: deconvolution-head joints: (1, 1, 1): not today."
    )


def test_the_command_prints_a_row_a_network(capsys, tmp_path):
    file = tmp_path / "rows.json"
    asked = ["--network", "deconvolution-head", "--batch", "1", "--kinds", "--layers"]
    assert main(["networks", *asked, "--workers", "1", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Modelled, trn2, constants ")
    assert printed.endswith("1 networks, 4 convolutions planned, 0 refused\n")
    layers = json.loads(file.read_text())["networks"][0]["layers"]
    assert [layer["calls"] for layer in layers] == [1, 1, 1, 1]


def test_equal_layers_are_counted_together():
    counted = networks.counted_layers(NETWORKS["resnet-50"]())
    assert sum(calls for _, calls in counted) == COUNTS["resnet-50"]
    assert len(counted) < COUNTS["resnet-50"]


def test_shares_and_peak_are_of_the_time():
    layers = tuple(
        networks.PricedLayer("a", kind, "1:1", "1x1", calls, 78_643_200, 720, ns, bound, 0)
        for kind, calls, ns, bound in [("1x1", 3, 1000.0, "dma"), ("3x3", 1, 1000.0, "tensor")]
    )
    row = networks.NetworkRow("n", "1x1", 1, layers, 2)
    assert row.bounds == "dma 75%, tensor 25%"
    assert row.of_peak == pytest.approx(78_643_200 / 1000 / networks.peak_macs_per_ns(2))
    assert row.least_ns == pytest.approx(4 * 78_643_200 / networks.peak_macs_per_ns(2))
    read_longest = replace(row, layers=tuple(replace(layer, macs=1) for layer in layers))
    assert read_longest.least_ns == pytest.approx(4 * 2 * 720 / TRN2.timing.hbm_bytes_per_ns)
    assert [kind for kind, _ in networks.by_kind(row)] == ["1x1", "3x3"]
