"""torch.compile of a whole training step: the guide's model in bf16, with a norm of ours in it."""

import pytest

torch = pytest.importorskip("torch")

from guide_vae import CausalVae, loss_of, moving_squares
from trnconv.pytorch import nn
from trnconv.pytorch.operators.norm_call import LENGTH, NormCall
from trnconv.pytorch.operators.norms import normed

pytestmark = [pytest.mark.torch, pytest.mark.training]

CALL = NormCall(LENGTH, 1e-6, factor=3**0.5, activation="silu")


class NormedVae(torch.nn.Module):
    """The guide's model behind a norm over channels with SiLU, one op with a gradient."""

    def __init__(self):
        super().__init__()
        self.vae = CausalVae(nn, 0)
        self.gamma = torch.nn.Parameter(torch.tensor([0.5, 1.0, 2.0]))

    def forward(self, x):
        return self.vae(normed(x, self.gamma, None, CALL))


def stepped(is_compiled):
    """The loss, gradients and parameters after a step; graphs that were compiled."""
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    model = NormedVae().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    run = torch.compile(model, fullgraph=True, backend=counting) if is_compiled else model
    loss = loss_of(run, moving_squares()[:1])
    loss.backward()
    optimizer.step()
    torch.compiler.reset()
    gradients = [parameter.grad for parameter in model.parameters()]
    return loss.item(), gradients + [p.detach() for p in model.parameters()], len(graphs)


def test_a_compiled_step_is_one_graph_and_equal_to_an_eager_one():
    loss, tensors, none = stepped(is_compiled=False)
    compiled_loss, compiled_tensors, graphs = stepped(is_compiled=True)
    assert (none, graphs) == (0, 1)
    assert loss == compiled_loss
    assert all(tensor.abs().max() > 0 for tensor in tensors)
    assert all(
        torch.equal(one, other) for one, other in zip(tensors, compiled_tensors, strict=True)
    )
