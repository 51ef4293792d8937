"""Traces without norms of ours: what a model does where no kernel takes them."""

from dataclasses import replace

from causal_run import causal_run
from trnconv.problem.coarse_residual import CoarseResidual
from trnconv.problem.epilogue import BEFORE, Epilogue, NormEpilogue
from trnconv.problem.prologue import PLAIN_PROLOGUE, prologue_of
from trnconv.traces import (
    Moved,
    Operation,
    without_fused_norms,
    without_norm_epilogues,
    without_norms,
)

X = 2 * 32 * 100  # bytes
STATISTICS = Operation(
    "group statistics",
    (32, 2),
    "bfloat16",
    X,
    256,
    ("group_factors",),
    X + 256,
    (1, 32, 8, 100),
    "silu",
)
NORM = Operation("group norm", (1, 32, 100), "bfloat16", X, X, ("norm",), 2 * X, (1, 32, 8, 100))
COPY = Operation("clone", (1, 32, 50), "bfloat16", X // 2, X // 2, ("clone",), X)


def seen():
    """Every convolution of a run with a start, and statistics for it."""
    run = causal_run()
    works = tuple((replace(work, prologue=prologue_of("silu")), calls) for work, calls in run.works)
    return replace(
        run,
        works=works,
        operations=((STATISTICS, 3),),
        operations_unfused=((NORM, 3), (COPY, 2)),
        moved=(Moved("pad", 1, 7), Moved("cache", 4, 1000)),
    )


def test_without_fused_norms_statistics_are_norms():
    apart = without_fused_norms(seen())
    assert {work.prologue for work, _ in apart.works} == {PLAIN_PROLOGUE}
    assert sum(calls for _, calls in apart.works) == seen().calls
    ((norm, calls),) = apart.operations
    assert (norm.kind, norm.activation, calls) == ("group norm", "silu", 3)
    assert (norm.sizes, norm.moved_bytes) == (STATISTICS.sizes, 2 * X)


def test_without_fused_norms_nothing_else_changes():
    plain = causal_run()
    assert without_fused_norms(plain) is plain


def test_without_norms_caches_are_copied():
    apart = without_norms(seen())
    assert apart.operations == seen().operations_unfused
    assert apart.copied_bytes == seen().copied_bytes + 2 * COPY.moved_bytes
    assert {work.prologue for work, _ in apart.works} == {PLAIN_PROLOGUE}


def test_without_some_epilogues_their_norms_are_operations():
    run = causal_run()
    epilogue = Epilogue(residual=BEFORE, norm=NormEpilogue(1e-6, "silu", first=1))
    works = tuple((replace(work, epilogue=epilogue), calls) for work, calls in run.works)
    normed = replace(run, works=works, operations=((COPY, 2),))
    some = without_norm_epilogues(normed, lambda work: work.module == "decoder.conv1")
    kept = [work for work, _ in some.works if work.epilogue == epilogue]
    assert {work.module for work in kept} == {"post_quant", "decoder.conv2", "decoder.time_conv"}
    bare = [work for work, _ in some.works if work.module == "decoder.conv1"]
    assert {work.epilogue for work in bare} == {Epilogue(residual=BEFORE)}
    norms = {(op.shape[2], calls) for op, calls in some.operations if op.kind == "rms norm"}
    # Chunks of one, two and four frames, each with its first frame apart.
    assert norms == {(0, 1), (1, 1 + 2 + 19), (3, 19)}
    assert (COPY, 2) in some.operations
    assert without_norm_epilogues(normed, lambda _: False) == normed


def test_without_fused_norms_a_coarse_residual_is_copied_first():
    run = causal_run()
    epilogue = Epilogue(residual=BEFORE, coarse=CoarseResidual(1, 2, 2, 4))
    works = tuple((replace(work, epilogue=epilogue), calls) for work, calls in run.works)
    apart = without_fused_norms(replace(run, works=works))
    assert {work.epilogue for work, _ in apart.works} == {Epilogue(residual=BEFORE)}
    copies = [(op, calls) for op, calls in apart.operations if op.kind == "clone"]
    assert sum(calls for _, calls in copies) == run.calls
    assert all(op.written_bytes == 4 * op.read_bytes for op, _ in copies)
