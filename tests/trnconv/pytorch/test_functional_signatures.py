"""The functions and modules have torch's arguments; what is ours is keyword-only."""

import inspect

import pytest

torch = pytest.importorskip("torch")

import trnconv
from trnconv.pytorch import functional, nn

pytestmark = pytest.mark.torch

# torch's own are builtins without a signature; this is what its documentation says.
FORWARD = "input weight bias=None stride=1 padding=0 dilation=1 groups=1"
TRANSPOSED = "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1"
DOCUMENTED = {f"conv{rank}d": FORWARD for rank in (1, 2, 3)}
DOCUMENTED |= {f"conv_transpose{rank}d": TRANSPOSED for rank in (1, 2, 3)}
MACHINE = {"backend", "machine", "cores"}
OURS = MACHINE | {"padding_mode", "activation", "residual", "accuracy", "reproducible"}
MODULES = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


def written(parameter):
    absent = parameter.default is inspect.Parameter.empty
    return parameter.name if absent else f"{parameter.name}={parameter.default}"


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_function_has_torchs_arguments_in_torchs_order(name):
    parameters = inspect.signature(getattr(functional, name)).parameters.values()
    positional = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert " ".join(map(written, positional)) == DOCUMENTED[name]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_is_ours_is_keyword_only(name):
    parameters = inspect.signature(getattr(functional, name)).parameters.values()
    keywords = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert keywords == (MACHINE if "transpose" in name else OURS)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_functions_of_arrays_have_what_is_not_torchs_too(name):
    """Ends are of `trnconv.runtime.convolve`, and arrays have no backend but nkisim."""
    keywords = [
        {each.name for each in inspect.signature(function).parameters.values()}
        for function in (getattr(functional, name), getattr(trnconv, name))
    ]
    assert keywords[0] - keywords[1] <= {"backend", "activation", "residual"}
    assert keywords[1] <= keywords[0]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_torchs_documentation_still_lists_these_arguments(name):
    listed = getattr(torch.nn.functional, name).__doc__.split(") -> Tensor")[0].split("(")[1]
    assert listed.replace(",", "") == DOCUMENTED[name]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_constructed_like_torchs(name):
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.signature(ours.forward).parameters.keys() == (
        inspect.signature(theirs.forward).parameters.keys()
    )
