"""A small 3-D CNN trains 20 steps through nkisim, and its losses follow torch's.

The bound. The net is a polynomial of data and weights (its activation is a square), and so are its
loss and gradients. Computed in float32, every monomial picks up at most C factors 1 + d with
|d| <= u = 2**-24, C being the roundings on the longest way from a weight to a gradient. So a
gradient g is off by at most gamma(C) M(g), where M is the same computation with all signs positive,
and the loss L likewise. With H the Hessian, and |.| the 2-norm, one step of gradient descent takes
a distance e between two runs to at most

    |I - rate H| e + rate gamma(C) |M(g)| + u (|theta| + 2 rate |g|)

and the losses differ by at most |g| e + gamma(C) M(L). This is of first order in e and u; e stays
below a hundredth of |theta|, so that twice the bound covers the rest. The bound is computed in
float64.
"""

import copy
import functools

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch import nn

pytestmark = pytest.mark.torch

STEPS, RATE, U = 20, 0.05, 2.0**-24
CHANNELS, HIDDEN, TAPS = 2, 2, 2**3
# Two convolutions, there and back: sums over taps and channels, or over positions; then squares,
# the bias, the mean and its derivative.
POSITIONS = 2 * 3 * 4 * 4
ROUNDINGS = 4 * TAPS * HIDDEN + 2 * POSITIONS + 40
GAMMA = ROUNDINGS * U / (1 - ROUNDINGS * U)


class Net(torch.nn.Module):
    """Two convolutions with a square between them."""

    def __init__(self, kinds):
        super().__init__()
        torch.manual_seed(3)
        self.first = kinds.Conv3d(CHANNELS, HIDDEN, 2)
        self.last = kinds.Conv3d(HIDDEN, 1, 2, padding=1)

    def forward(self, x):
        return self.last(self.first(x).square())


def data():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, CHANNELS, 3, 4, 4, generator=generator)
    return x, x[:, :1] * x[:, 1:] + 0.5


def train(net):
    """The loss before each step."""
    x, machine = data()
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    losses = []
    for _ in range(STEPS):
        loss = (net(x) - machine).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def loss_at(theta, net, x, machine, sign):
    """The loss as a function of all weights in one vector; sign +1 makes all terms positive."""
    named, at = {}, 0
    for name, each in net.named_parameters():
        named[name] = theta[at : at + each.numel()].view_as(each)
        at += each.numel()
    return (torch.func.functional_call(net, named, (x,)) + sign * machine).square().mean()


@pytest.fixture(scope="module")
def exact():
    """Losses of torch in float64, and how far from them a float32 run may be."""
    net = Net(torch.nn).double()
    x, machine = (each.double() for each in data())
    theta = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    losses, bounds, apart = [], [], torch.tensor(0.0, dtype=torch.float64)
    for _ in range(STEPS):
        at = theta.clone().requires_grad_()
        loss = loss_at(at, net, x, machine, -1)
        (gradient,) = torch.autograd.grad(loss, at)
        most = theta.abs().requires_grad_()
        largest = loss_at(most, net, x.abs(), machine.abs(), 1)
        (magnitude,) = torch.autograd.grad(largest, most)
        hessian = torch.autograd.functional.hessian(
            functools.partial(loss_at, net=net, x=x, machine=machine, sign=-1),
            theta,
            vectorize=True,
        )
        losses.append(loss.item())
        bounds.append(2 * (gradient.norm() * apart + GAMMA * largest).item())
        spread = torch.linalg.matrix_norm(torch.eye(len(theta)) - RATE * hessian, 2)
        rounded = U * (theta.norm() + 2 * RATE * gradient.norm())
        apart = spread * apart + RATE * GAMMA * magnitude.norm() + rounded
        assert apart <= 0.01 * theta.norm()
        theta = theta - RATE * gradient
    return losses, bounds


def test_twenty_steps_follow_the_losses_of_torch(exact):
    losses, bounds = exact
    assert losses[-1] < 0.75 * losses[0]  # it learns
    assert max(bounds) < (losses[0] - losses[-1]) / 20  # and the bound says something
    found = train(Net(nn))
    for step, (one, right, bound) in enumerate(zip(found, losses, bounds, strict=True)):
        assert abs(one - right) <= bound, f"step {step}"


def test_the_bound_notices_a_gradient_that_is_five_percent_off(exact):
    losses, bounds = exact
    net = Net(nn)
    net.first.weight.register_hook(lambda gradient: 1.05 * gradient)
    found = train(net)
    assert any(
        abs(one - right) > bound for one, right, bound in zip(found, losses, bounds, strict=True)
    )


def test_compiled_training_is_equal_to_eager_training():
    eager = Net(nn)
    compiled = copy.deepcopy(eager)
    assert train(eager) == train(torch.compile(compiled, fullgraph=True, backend="aot_eager"))
    assert all(
        torch.equal(one, other)
        for one, other in zip(eager.parameters(), compiled.parameters(), strict=True)
    )
