"""Rows for tests: small kernels with made-up figures, and what is modelled for them."""

from nkisim import Spec
from validation.kernels import vector_add
from validation.outcome import Modelled, Outcome
from validation.row import Row


def row_of(published_us, **changes):
    fields = {
        "number": "1",
        "title": "a kernel",
        "machine": "trn2",
        "dtype": "float32",
        "published_us": published_us,
        "source": "a document",
        "stream": "It adds.",
        "kernel": vector_add.by_columns,
        "arguments": (Spec((512,), "float32"), Spec((512,), "float32")),
        "options": {"columns": 4},
    }
    return Row(**{**fields, **changes})


def modelled_of(optimistic, default, pessimistic):
    return Modelled(
        optimistic_us=optimistic, default_us=default, pessimistic_us=pessimistic, bound="dma"
    )


def outcome_of(published, optimistic, default, pessimistic, **changes):
    return Outcome(row_of(published, **changes), modelled_of(optimistic, default, pessimistic))
