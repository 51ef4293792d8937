"""Every overload of every operator that a patched model records, in every way of calling it.

The overloads are read from torch's schemas, so that one that a new version adds is tried as well.
`WAYS` are ways to write the result, to share and replace operands, and to hide a tensor that wants
a gradient. Whatever torch does, patched models do: the same values, strides, types, gradients and
kinds of errors.
"""

import copy
import types

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from recorded_operators import (
    UNWRITTEN,
    base_of,
    call,
    operands_of,
    operators,
    overloads,
    written_by_keyword,
)
from repetition import few
from trnconv.pytorch import patch_
from trnconv.pytorch.lazy.movements import RECORDED

pytestmark = pytest.mark.torch

OVERLOADS = [overload for name in operators() for overload in overloads(name)]
TOLERANCE = 1e-5  # of sums of 108 products of numbers below 4, in float32


class Model(nn.Module):
    """An operator on what a model makes: the result of a convolution, or what was moved."""

    def __init__(self, kind, run):
        super().__init__()
        self.rank = 2 if kind == "images" else 3
        convolution = nn.Conv2d if self.rank == 2 else nn.Conv3d
        self.conv, self.kind, self.run = convolution(4, 4, 3, padding=1), kind, run
        self.weight = nn.Parameter(torch.randn(4, 4, *[3] * self.rank) / 10)
        self.register_buffer("buffer", torch.ones(1))
        self.attribute = torch.ones(1)
        self.kept = None
        self.requires_grad_(requires_grad=False)

    def operand(self, x):
        if self.kind == "moved":
            return nn.functional.pad(x, (1, 1))[..., 1:-1]
        if self.kind == "images":  # frames of one video
            return self.conv(x.transpose(1, 2).flatten(0, 1))
        if self.kind == "channels last":
            return self.conv(x.contiguous(memory_format=torch.channels_last_3d))
        return self.conv(x)

    def forward(self, x, *others):
        operand = self.operand(x)
        return self.run(self, operands_of(operand, operand.detach() * 2, self.weight), *others)


def result_like(overload, operands):
    """Memory for what an overload writes by keyword, as large as its base makes it."""
    base = base_of(overload)
    operator, _, kind = base.partition(".")
    made = call(getattr(getattr(torch.ops.aten, operator), kind or "default"), operands)
    return torch.full_like(made, 7.0 if made.is_floating_point() else 0)


def called(overload, operands, *, make_out=lambda buffer, _: buffer):
    """The result, and what was written to; into new memory if it is written by keyword."""
    names = written_by_keyword(overload)
    if not names:
        return call(overload, operands)
    buffer = make_out(result_like(overload, operands), operands)
    return [call(overload, operands, **{names[0]: buffer}), buffer]


def plainly(overload, model, operands):
    return called(overload, operands)


def into_noted_memory(overload, model, operands):
    return called(overload, operands, make_out=lambda buffer, _: buffer.clone())


def into_a_view(overload, model, operands):
    whole = []

    def view(buffer, _):
        whole.append(torch.stack([buffer, buffer]))
        return whole[0][1]

    return [called(overload, operands, make_out=view), *whole]


def into_memory_of_another_size(overload, model, operands):
    return called(overload, operands, make_out=lambda buffer, _: buffer.new_empty(0))


def with_its_operand_twice(overload, model, operands):
    return called(overload, operands_of(operands.x, operands.x, operands.w))


def with_an_alias_of_its_operand(overload, model, operands):
    return called(overload, operands_of(operands.x, operands.x.view_as(operands.x), operands.w))


def then_its_operand_changes(overload, model, operands):
    made = called(overload, operands)
    operands.x.mul_(3)
    return [made, operands.x]


def then_the_data_of_its_operands_is_replaced(overload, model, operands):
    made = called(overload, operands)
    for operand in (operands.x, operands.w):
        operand.data = operand.data * 3
    return [made, operands.x]


def then_a_view_of_it_is_kept(overload, model, operands):
    made = called(overload, operands)
    last = made[-1] if isinstance(made, list) else made
    model.kept = last[..., -1:] if last.dim() else last
    return made


def then_it_is_viewed(overload, model, operands):
    made = called(overload, operands)
    last = made[-1] if isinstance(made, list) else made
    return [made, last.view(-1), (last * 2).view(last.shape[0], -1)]


def then_it_is_changed(overload, model, operands):
    made = called(overload, operands)
    last = made[-1] if isinstance(made, list) else made
    view = last[..., :1]
    last.zero_() if last.dtype == torch.bool else last.mul_(2)
    return [made, view, operands.x]


WAYS = [
    plainly, into_noted_memory, into_a_view, into_memory_of_another_size, with_its_operand_twice,
    with_an_alias_of_its_operand, then_its_operand_changes,
    then_the_data_of_its_operands_is_replaced, then_a_view_of_it_is_kept, then_it_is_viewed,
    then_it_is_changed,
]  # fmt: skip
BY_DEFAULT = [plainly, then_the_data_of_its_operands_is_replaced]  # the others are slow
KINDS = ["convolved", "moved", "images", "channels last"]


def seen(run):
    """What can be told of a run: its tensors, or the kind of its error."""
    try:
        made = run()
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return type(error).__name__
    return list(tensors_of(made))


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors_of(inner)


def compare(theirs, ours, about):
    assert type(ours) is type(theirs), (about, theirs, ours)
    if isinstance(theirs, str):
        assert ours == theirs, about
        return
    for expected, result in zip(theirs, ours, strict=True):
        assert type(result) is torch.Tensor, about
        assert (expected.shape, expected.dtype) == (result.shape, result.dtype), about
        assert expected.stride() == result.stride(), (about, expected.stride(), result.stride())
        assert torch.allclose(expected, result, rtol=0, atol=TOLERANCE, equal_nan=True), about


def both(kind, run, mode, *others):
    """A run of the unpatched model and one of the patched one."""
    torch.manual_seed(0)
    model = Model(kind, run)
    patched_model, x = copy.deepcopy(model), torch.randn(1, 4, 3, 4, 5)
    patch_(patched_model, backend="torch")
    results = []
    for each in (model, patched_model):
        with mode():
            results.append(seen(lambda each=each: each(x.clone(), *others)))
    return results


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=way.__name__, marks=() if way in BY_DEFAULT else pytest.mark.slow)
        for way in WAYS
    ],
)
@pytest.mark.parametrize("overload", OVERLOADS, ids=str)
def test_an_overload_in_every_way_of_writing_it(overload, way):
    if base_of(overload).split(".")[0] in UNWRITTEN:
        pytest.skip("its values are whatever the memory held")
    for kind in KINDS:
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            theirs, ours = both(kind, lambda m, o: way(overload, m, o), mode)
            compare(theirs, ours, (kind, mode.__name__))


def in_a_closure():
    leaf = torch.ones(1, requires_grad=True)
    return leaf, lambda _model, *_: leaf, ()


def in_an_attribute():
    leaf = torch.ones(1, requires_grad=True)

    def put(model, *_):
        model.attribute = leaf
        return model.attribute

    return leaf, put, ()


def in_a_buffer():
    leaf = torch.ones(1, requires_grad=True)

    def put(model, *_):
        model.buffer = leaf
        return model.buffer

    return leaf, put, ()


def in_a_namespace():
    leaf = torch.ones(1, requires_grad=True)
    return leaf, lambda _model, holder: holder.leaf, (types.SimpleNamespace(leaf=leaf),)


def made_inside():
    made = []

    def make(_model, *_):
        made.append(torch.ones(1).requires_grad_())
        return made[-1]

    return made, make, ()


HIDING_PLACES = [in_a_closure, in_an_attribute, in_a_buffer, in_a_namespace, made_inside]


def gradient_of(overload, place, *, is_patched):
    """The result, and the gradient of a hidden leaf that one operand is multiplied by."""
    torch.manual_seed(0)
    leaf, find, others = place()

    def run(model, operands, *given):
        hidden = find(model, *given)
        return called(overload, operands_of(operands.x * hidden, operands.y, operands.w))

    model, x = Model("convolved", run), torch.randn(1, 4, 3, 4, 5)
    if is_patched:
        patch_(model, backend="torch")

    def differentiated():
        results = list(tensors_of(model(x, *others)))
        if not results[-1].requires_grad:
            return results
        results[-1].sum().backward()
        wanted = leaf[-1] if isinstance(leaf, list) else leaf
        return [*(result.detach() for result in results), wanted.grad]

    return seen(differentiated)


@few(30)
@pytest.mark.parametrize("place", HIDING_PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("overload", OVERLOADS, ids=str)
def test_a_hidden_leaf_gets_its_gradient(overload, place):
    if base_of(overload).split(".")[0] in UNWRITTEN:
        pytest.skip("its values are whatever the memory held")
    theirs = gradient_of(overload, place, is_patched=False)
    ours = gradient_of(overload, place, is_patched=True)
    compare(theirs, ours, overload)


def test_every_note_is_of_an_overload_that_writes_what_the_note_writes():
    known = {overload.name(): overload for name in operators() for overload in overloads(name)}
    constructors = {"aten::empty.memory_format", "aten::zeros", "aten::full"}
    assert set(RECORDED) - set(known) <= constructors
    for name in set(RECORDED) & set(known):
        written = [
            argument.name
            for argument in known[name]._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        assert written == (["self"] if name.split(".")[0].endswith("_") else []), name
