"""Gradients of norms with their activation, against torch's own in float64.

The formula is run in float64. An element of a gradient is a sum of at most 1000 terms here, each of
some 60 roundings of 2**-53 and with condition numbers below 10: 1e-10 of the largest element is
above all of that, and far below what a wrong term would make. What the op gives in float32 is the
formula's own result, bit for bit, where no kernel computes it; a kernel has some 120 roundings of
2**-24, with the same condition numbers: 1e-4 of the largest element.
"""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from repetition import few
from trnconv.problem.epilogue import ACTIVATIONS
from trnconv.pytorch.operators import norm_gradient
from trnconv.pytorch.operators.norm_call import FRAME_GROUPS, GROUPS, LENGTH, MEAN_SQUARE, NormCall
from trnconv.pytorch.operators.norm_derivatives import norm_gradients
from trnconv.pytorch.operators.norms import normed

pytestmark = [pytest.mark.torch, pytest.mark.block, pytest.mark.training]

CHANNELS, SIZES, CLOSE, CLOSE_SINGLE = 12, (2, 12, 4, 3, 5), 1e-10, 1e-4
EACH = (1, -1, 1, 1, 1)
KINDS = {
    "length": NormCall(LENGTH, 1e-6, factor=CHANNELS**0.5),
    "mostly short": NormCall(LENGTH, 3.5, factor=2.0),
    "some frames": NormCall(LENGTH, 1e-6, first=1, frames=2),
    "mean": NormCall(MEAN_SQUARE, 1e-3, factor=-2.0),
    "mean of frames": NormCall(MEAN_SQUARE, 1e-3, first=2, frames=1),
    "groups": NormCall(GROUPS, 1e-5, groups=4),
    "groups of frames": NormCall(FRAME_GROUPS, 1e-5, groups=3, factor=0.5),
}
TORCHS = {
    "identity": lambda u: u,
    "relu": torch.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda u: functional.gelu(u, approximate="tanh"),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "mish": functional.mish,
}


def noise(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def problem():
    """x, gamma, beta, and what is multiplied with y to make a number of it."""
    return noise(*SIZES), noise(CHANNELS, seed=1), noise(CHANNELS, seed=2), noise(*SIZES, seed=3)


def by_torch(call, x, gamma, beta):
    """The norm by torch's own functions, of any type."""
    if call.frames:
        x = x[:, :, call.first : call.first + call.frames]
    if call.kind == GROUPS:
        n = functional.group_norm(x, call.groups, eps=call.eps)
    elif call.kind == FRAME_GROUPS:
        frames = functional.group_norm(x.transpose(1, 2).flatten(0, 1), call.groups, eps=call.eps)
        n = frames.unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)
    elif call.kind == LENGTH:
        n = functional.normalize(x, dim=1, eps=call.eps)
    else:
        n = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + call.eps)
    u = call.factor * n * gamma.reshape(EACH) + beta.reshape(EACH)
    return TORCHS[call.activation](u)


def silu(name):
    return replace(KINDS[name], activation="silu")


def given(call):
    """dy, of the frames of a call."""
    weights = problem()[3]
    return weights.narrow(2, call.first, call.frames) if call.frames else weights


def assert_close(found, exact, close=CLOSE):
    for ours, theirs in zip(found, exact, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= close * theirs.abs().max()


def assert_formula(call):
    leaves = [tensor.double().requires_grad_() for tensor in problem()[:3]]
    dy = given(call).double()
    exact = torch.autograd.grad((by_torch(call, *leaves) * dy).sum(), leaves)
    assert_close(norm_gradients(call, *leaves, dy), exact)


@pytest.mark.parametrize("name", KINDS)
def test_gradients_of_norms_are_torchs(name):
    assert_formula(silu(name))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_activations_are_torchs(activation):
    assert_formula(replace(KINDS["length"], activation=activation))


def by_op(call):
    """Gradients of one image, in float32: norms of frames take no more in a launch."""
    x, gamma, beta, _ = problem()
    leaves = [tensor.requires_grad_() for tensor in (x[:1], gamma, beta)]
    normed(*leaves, call).backward(given(call)[:1])
    return leaves, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize(("name", "activation"), [("groups of frames", "silu"), ("groups", "mish")])
def test_the_op_gives_the_formula_where_there_is_no_kernel(name, activation):
    call = replace(KINDS[name], activation=activation)
    leaves, found = by_op(call)
    formula = norm_gradients(call, *leaves, given(call)[:1])
    assert all(torch.equal(one, other) for one, other in zip(found, formula, strict=True))


@pytest.mark.parametrize("activation", ["silu", "gelu", "identity"])
@pytest.mark.parametrize("name", ["length", "some frames", "mean", "mean of frames", "groups"])
def test_the_kernel_gives_the_formula(name, activation, monkeypatch):
    call = replace(KINDS[name], activation=activation)
    monkeypatch.setattr(norm_gradient, "_by_torch", None)  # nobody else is asked
    leaves, found = by_op(call)
    wide = [leaf.detach().double() for leaf in leaves]
    formula = norm_gradients(call, *wide, given(call)[:1].double())
    assert_close(found, formula, CLOSE_SINGLE)


@few(2)
@pytest.mark.parametrize("name", ["length", "some frames", "groups"])
def test_a_device_gives_the_formula(name, on_device):
    call = silu(name)
    leaves, found = by_op(call)
    formula = norm_gradients(call, *(leaf.double() for leaf in leaves), given(call)[:1].double())
    assert_close(found, formula, CLOSE_SINGLE)


def test_kernels_of_groups_take_several_images_of_any_mean():
    """n = r x + s is then off by some 2**-23 of 100, which the formula multiplies by 10 at most."""
    call = replace(silu("groups"), factor=0.5)
    x, gamma, beta, dy = problem()
    leaves = [(x + 100).requires_grad_(), gamma.requires_grad_(), beta.requires_grad_()]
    normed(*leaves, call).backward(dy)
    wide = [leaf.detach().double() for leaf in leaves]
    found = [leaf.grad for leaf in leaves]
    assert_close(found, norm_gradients(call, *wide, dy.double()), 10 * CLOSE_SINGLE)


def test_the_kernel_takes_the_gradient_of_its_own_norm():
    """It adds the square of eps below the root, where torch has a least length."""
    call = KINDS["mostly short"]
    leaves, found = by_op(call)
    x, gamma, beta = (leaf.detach().double().requires_grad_() for leaf in leaves)
    n = x * torch.rsqrt(x.square().sum(1, keepdim=True) + call.eps**2)
    y = call.factor * n * gamma.reshape(EACH) + beta.reshape(EACH)
    exact = torch.autograd.grad((y * given(call)[:1].double()).sum(), (x, gamma, beta))
    assert_close(found, exact, CLOSE_SINGLE)


def test_short_vectors_are_divided_by_eps():
    call = KINDS["mostly short"]
    short = problem()[0].norm(dim=1) <= call.eps
    assert short.any()
    assert not short.all()


def test_a_norm_without_gamma_and_beta_has_a_gradient():
    call = KINDS["mean"]
    x, dy = problem()[0].double().requires_grad_(), given(call).double()
    ones, zeros = torch.ones(CHANNELS).double(), torch.zeros(CHANNELS).double()
    exact = torch.autograd.grad((by_torch(call, x, ones, zeros) * dy).sum(), x)
    dx, dgamma, dbeta = norm_gradients(call, x, None, None, dy)
    assert dgamma is None
    assert dbeta is None
    assert_close([dx], exact)
    narrow = problem()[0].requires_grad_()
    normed(narrow, None, None, call).backward(given(call))
    formula = norm_gradients(call, narrow, None, None, given(call))
    assert_close([narrow.grad], formula[:1], CLOSE_SINGLE)


SECOND = [silu(name) for name in ("mostly short", "mean", "groups", "groups of frames")] + [
    replace(KINDS["length"], activation=activation) for activation in ACTIVATIONS
]


@pytest.mark.parametrize("call", SECOND, ids=lambda call: f"{call.kind}, {call.activation}")
def test_second_derivatives_are_torchs(call):
    leaves = [tensor.double().requires_grad_() for tensor in problem()[:3]]
    dy = given(call).double()
    y = by_torch(call, *leaves)
    first = torch.autograd.grad((y * dy).sum(), leaves, create_graph=True)
    exact = torch.autograd.grad(first[0].square().sum(), leaves, materialize_grads=True)
    dx = norm_gradients(call, *leaves, dy)[0]
    ours = torch.autograd.grad(dx.square().sum(), leaves, materialize_grads=True)
    assert_close(ours, exact)


def by_kernels(call, *tensors):
    return normed(*tensors, call)


@pytest.mark.parametrize("name", ["length", "mean"])
def test_second_derivatives_of_the_op_are_torchs(name):
    """The first is the kernel's in float32, the second torch's of the formula."""
    call = silu(name)
    exact, found = [], []
    for function, kept in ((by_torch, exact), (by_kernels, found)):
        leaves = [tensor.requires_grad_() for tensor in problem()[:3]]
        y = function(call, *leaves)
        first = torch.autograd.grad((y * given(call)).sum(), leaves, create_graph=True)
        total = sum(gradient.square().sum() for gradient in first)
        kept.extend(torch.autograd.grad(total, leaves))
    assert_close(found, exact, 10 * CLOSE_SINGLE)  # of sums over products of first derivatives


def test_the_op_of_gradients_is_a_proper_op():
    x, gamma, beta, dy = problem()
    arguments = (x, dy, gamma, beta, silu("length").words(), "auto")
    checked = torch.library.opcheck(norm_gradient.norm_gradient_op, arguments)
    assert set(checked.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_have_the_types_of_what_they_are_of(dtype):
    call = silu("groups")
    x, gamma, beta, weights = problem()
    leaves = [x.to(dtype).requires_grad_(), gamma.requires_grad_(), beta.requires_grad_()]
    y = normed(*leaves, call)
    y.backward(weights.to(dtype))
    assert [leaf.grad.dtype for leaf in leaves] == [dtype, torch.float32, torch.float32]
    whole = norm_gradients(call, leaves[0].detach().float(), gamma, beta, weights.to(dtype).float())
    rounded = torch.finfo(dtype).eps * whole[0].abs().max()
    assert (leaves[0].grad - whole[0]).abs().max() <= rounded


def test_a_compiled_step_with_a_norm_is_an_eager_one():
    call = silu("length")

    def step(x, gamma, beta, weights):
        return (normed(x, gamma, beta, call) * weights).sum()

    found = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        x, gamma, beta, weights = problem()
        leaves = [tensor.requires_grad_() for tensor in (x, gamma, beta)]
        function(*leaves, weights).backward()
        found.append([leaf.grad for leaf in leaves])
    torch.compiler.reset()
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
