"""Extra order between instructions: kernel.with_schedule and NkiInstruction.depends_on."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import Kernel, run

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def chain(x):
    """Four named instructions, of which the middle ones do not depend on each other."""
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    first, second = nl.ndarray(x.shape, x.dtype), nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(first, x, name="load")
    nisa.memset(second, 0.0, name="clear")
    nisa.memset(second, 1.0, name="set")
    nisa.dma_copy(out, first, name="store")
    return out


def after_of(done):
    return {i.name: i.after for i in done.trace.instructions()}


def test_a_schedule_adds_edges_and_changes_no_value():
    plain, ordered = Kernel(chain), Kernel(chain).with_schedule([("store", ["set", "clear"])])
    assert after_of(run(plain, X)) == {"load": (), "clear": (), "set": (), "store": ()}
    done = run(ordered, X)
    assert after_of(done) == {"load": (), "clear": (), "set": (), "store": (2, 1)}
    assert np.array_equal(done.outputs, X)
    assert done.trace.key() != run(plain, X).trace.key()


def test_a_schedule_takes_a_name_or_a_list_and_both_cores_obey(monkeypatch):
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG")
    kernel = Kernel(chain)[2].with_schedule([("set", "load"), ("store", ["set"])])
    for trace in run(kernel, Spec((4, 6), "float32"), machine="trn2", values=False).traces:
        assert [i.after for i in trace.instructions()] == [(), (), (0,), (2,)]
    assert kernel.lnc == 2


BAD_SCHEDULES = {
    "no instruction named 'stor'": [("stor", "load")],
    "no instruction named 'lod'(.|\n)*names in this kernel: clear, load, set, store": [
        ("store", ["load", "lod"])
    ],
    "'set' waits for 'set'": [("set", "set")],
}


@pytest.mark.parametrize("message", BAD_SCHEDULES)
def test_a_schedule_names_instructions_of_the_kernel(message):
    with pytest.raises(NkiValidationError, match=f"with_schedule: {message}"):
        run(Kernel(chain).with_schedule(BAD_SCHEDULES[message]), X)


def test_a_name_stands_for_every_instruction_that_has_it():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        for _ in range(2):
            nisa.memset(tile, 0.0, name="clear")
        for _ in range(2):
            nisa.dma_copy(tile, x, name="load")

    done = run(Kernel(kernel).with_schedule([("load", "clear")]), X)
    assert [i.after for i in done.trace.instructions()] == [(), (), (0, 1), (0, 1)]


def looped(order):
    """A kernel with instructions before, in, around and after loops; `order` adds edges."""

    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        handles = {"before": nisa.memset(tile, 0.0, name="before")}

        def inner(_):
            handles["inner"] = nisa.memset(tile, 2.0, name="inner")
            order(handles, "inner")

        def outer(_):
            handles["outer"] = nisa.memset(tile, 1.0, name="outer")
            order(handles, "outer")
            nl.fori_loop(0, 2, inner)
            handles["late"] = nisa.memset(tile, 1.0, name="late")
            order(handles, "late")

        nl.fori_loop(0, 2, outer)
        handles["after"] = nisa.memset(tile, 3.0, name="after")
        order(handles, "after")

    return kernel


LEGAL = [("outer", "before"), ("inner", "before"), ("late", "outer"), ("after", "before")]
CROSSING = [("after", "outer"), ("after", "inner"), ("late", "inner")]


@pytest.mark.parametrize(("consumer", "producer"), [*LEGAL, ("inner", "outer")])
@pytest.mark.parametrize("values", [True, False])
def test_a_schedule_may_order_after_what_is_around_a_loop(consumer, producer, values):
    x = X if values else Spec(X.shape, "float32")
    kernel = Kernel(looped(lambda *_: None)).with_schedule([(consumer, producer)])
    done = run(kernel, x, values=values)
    index = {i.name: i.index for i in done.trace.instructions()}
    assert after_of(done)[consumer] == (index[producer],)


@pytest.mark.parametrize(("consumer", "producer"), [*CROSSING, ("before", "inner")])
def test_a_schedule_does_not_cross_into_a_loop(consumer, producer):
    kernel = Kernel(looped(lambda *_: None)).with_schedule([(consumer, producer)])
    with pytest.raises(NkiValidationError, match=f"'{consumer}' waits for '{producer}'"):
        run(kernel, X)


def waits(consumer, producer):
    def order(handles, name):
        if name == consumer:
            handles[consumer].depends_on(handles[producer])

    return order


@pytest.mark.parametrize(("consumer", "producer"), LEGAL)
@pytest.mark.parametrize("values", [True, False])
def test_depends_on_adds_an_edge(consumer, producer, values):
    x = X if values else Spec(X.shape, "float32")
    done = run(looped(waits(consumer, producer)), x, values=values)
    index = {i.name: i.index for i in done.trace.instructions()}
    assert after_of(done)[consumer] == (index[producer],)


@pytest.mark.parametrize(("consumer", "producer"), CROSSING)
def test_depends_on_does_not_cross_out_of_a_loop(consumer, producer):
    with pytest.raises(NkiValidationError, match="depends_on: memset waits for memset") as refusal:
        run(looped(waits(consumer, producer)), X)
    assert refusal.value.limit == "an edge may not leave a dynamic loop"


def test_depends_on_takes_several_and_chains():
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        first, second, third = (nisa.memset(tile, 0.0) for _ in range(3))
        assert third.depends_on(second, first) is third
        nisa.memset(tile, 0.0).depends_on(first).depends_on(third)

    done = run(kernel, X)
    assert [i.after for i in done.trace.instructions()] == [(), (), (1, 0), (0, 2)]


@pytest.mark.parametrize("producer", ["itself", 3])
def test_depends_on_takes_other_instructions(producer):
    def kernel():
        handle = nisa.memset(nl.ndarray((4, 4), nl.float32), 0.0)
        handle.depends_on(handle if producer == "itself" else producer)

    with pytest.raises(NkiValidationError, match=f"depends_on: memset waits for {producer}"):
        run(kernel, machine="trn2")
