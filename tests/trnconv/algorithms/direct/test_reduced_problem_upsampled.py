"""A convolution that reads its input upsampled: the same result with fewer multiplications."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from conv_arrays import normal_arrays
from direct_plans import direct_plan, direct_plans
from repetition import few, slow_beyond
from trnconv.algorithms.direct.pack import merged_filters
from trnconv.algorithms.direct.reduced_problem import DEPTH, HEIGHT, WIDTH, fold, stored_out
from trnconv.algorithms.direct.rules import violations
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import conv_shape, input_gradient_shape
from trnconv.planner.explain import explain
from trnconv.problem import launches
from trnconv.problem.epilogue import AFTER, BEFORE, NO_RESIDUAL, RELU, Epilogue
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.reference import forward
from trnconv.runtime import (
    LaunchOptions,
    convolve_pieces,
    convolve_shape,
    time_plan,
    trace_plan,
    weight_gradient,
)
from upsampled_calls import MACHINES, cut, random_upsampled, whole_arrays

CAUSAL = ((2, 0), 1, 1)
PLAIN = LaunchOptions()


def hunyuan(c_in, c_out, size, **options):
    """HunyuanVideo: all axes doubled but the first frame, everything padded with edges."""
    asked = {"padding": CAUSAL, "padding_mode": "replicate", "upsample": 2, "skip": (1, 0, 0)}
    return conv_shape((1, c_in, *size), (c_out, c_in, 3, 3, 3), **asked | options)


CASES = {
    "wan": conv_shape((3, 24, 5, 7), (12, 24, 3, 3), padding=1, upsample=2),
    "hunyuan": hunyuan(20, 16, (4, 5, 6)),
    "hunyuan, wide": hunyuan(130, 140, (2, 3, 4)),
    "paired columns": hunyuan(130, 50, (2, 3, 4)),
    "paired columns beside whole tiles": hunyuan(24, 192, (2, 3, 4)),
    "hunyuan, two frames": hunyuan(8, 8, (2, 3, 5)),
    "hunyuan, one frame": hunyuan(200, 9, (1, 3, 5)),
    "thirds": conv_shape((1, 6, 3, 4, 5), (5, 6, 3, 3, 3), padding=1, upsample=3),
    "thirds, nothing whole": conv_shape((1, 6, 3, 4, 5), (5, 6, 3, 2, 2), upsample=3),
    "rows only": conv_shape((2, 33, 3, 4, 5), (40, 33, 3, 3, 3), padding=1, upsample=(1, 2, 1)),
    "frames only": conv_shape((2, 33, 3, 4, 5), (40, 33, 3, 1, 1), padding=1, upsample=(2, 1, 1)),
    "columns only": conv_shape((2, 40, 21), (3, 40, 7), padding=3, upsample=2),
    "five taps": conv_shape((1, 10, 6, 7), (20, 10, 5, 5), padding=2, upsample=2),
    "one tap": conv_shape((2, 3, 2, 4, 3), (4, 3, 1, 1, 1), upsample=(1, 2, 2)),
    "dilated": conv_shape((1, 12, 9, 8), (12, 12, 3, 3), padding=2, dilation=2, upsample=(2, 3)),
    "grouped": conv_shape((1, 24, 5, 6), (12, 6, 3, 3), padding=1, upsample=2, groups=4),
    "depthwise": conv_shape((1, 40, 5, 6), (40, 1, 3, 3), padding=1, upsample=2, groups=40),
    "skipping all axes": hunyuan(9, 7, (3, 4, 5), skip=1, padding=1),
    "no padding, skipping": conv_shape((1, 9, 3, 9), (7, 9, 3, 3), upsample=3, skip=(2, 1)),
    "only padding": conv_shape((1, 4, 2), (3, 4, 1), padding=3, upsample=2),
}
cases = pytest.mark.parametrize("shape", CASES.values(), ids=list(CASES))


def check(shape, launch=PLAIN, dtype="bfloat16", frames=()):
    """One call against the reference, in bits; the output with what nkisim saw."""
    x, w, bias, residual = whole_arrays(shape, dtype)
    if launch.epilogue.residual != NO_RESIDUAL:
        launch = replace(launch, residual=residual)
    done = convolve_shape(cut(x, frames) if frames else [x], w, bias, shape, launch)
    expected = finished(forward(x, w, bias, shape), residual.astype(float), launch.epilogue)
    assert np.array_equal(done.y, expected.astype(x.dtype))
    return done


def finished(y, residual, epilogue):
    y = y + residual if epilogue.residual == BEFORE else y
    y = np.maximum(y, 0) if epilogue.activation == RELU else y
    return y + residual if epilogue.residual == AFTER else y


@few(6)
@pytest.mark.parametrize("machine", MACHINES, ids=str)
@cases
def test_it_is_the_convolution_of_the_repeated_input(shape, machine):
    """Pairs of trn3 are among the random members of every run."""
    check(shape, LaunchOptions(*machine))


def test_the_reference_repeats_all_frames_but_the_first():
    shape = conv_shape((1, 1, 3, 1, 1), (1, 1, 1, 1, 1), upsample=(2, 1, 3), skip=(1, 0, 0))
    x = np.arange(3.0).reshape(1, 1, 3, 1, 1)
    y = forward(x, np.ones((1, 1, 1, 1, 1)), None, shape)
    assert y[0, 0, :, 0, :].tolist() == [[n] * 3 for n in (0, 1, 1, 2, 2)]


@few(2)
@cases
def test_hardware_loops(shape):
    """Every size of block, one and two of them in an iteration."""
    plan = direct_plan(shape)
    plain = replace(plan, looped=True, lead=(), ahead=False)
    smaller = replace(plain, rows=plan.row_multiple, frames=max(p.frames for p in plan.passes))
    smallest = replace(smaller, columns=2 * max(p.columns for p in plan.passes))
    plans = [replace(plan, body_blocks=n) for plan in (plain, smaller, smallest) for n in (1, 2)]
    legal = [plan for plan in plans if not violations(plan)]
    assert legal
    for plan in legal:
        check(shape, LaunchOptions(plans=(plan,)))


@few(2)
@pytest.mark.parametrize(
    "name", ["wan", "hunyuan", "paired columns", "grouped", "rows only", "hunyuan, wide"]
)
def test_every_plan_that_lost(name):
    for other in direct_plans(CASES[name])[1:13]:
        check(CASES[name], LaunchOptions(plans=(other.plan,)))


@pytest.mark.parametrize(
    ("c_out", "channels"), [(192, [128, 64]), (50, [50]), (96, [96]), (200, [200])], ids=str
)
def test_columns_of_few_channels_share_the_array(c_out, channels):
    """Those beyond whole tiles, if two columns of them fit; 72 do not."""
    shape = conv_shape(
        (1, 384, 1, 24, 40), (c_out, 384, 1, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)
    )
    plan = direct_plan(shape)
    assert [packing.channels for packing in plan.passes] == channels
    assert plan.passes[-1].pairs_columns == (channels[-1] <= 64)


@pytest.mark.slow
def test_sharing_columns_takes_an_eighth_off_192_channels():
    """Of 4 phases x 2 x 2 taps in two tiles, the second's pairs of columns have 2 x 3 taps."""
    shape = conv_shape(
        (1, 384, 1, 24, 320), (192, 384, 1, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)
    )
    plan = direct_plan(shape)
    apart = [it.plan for it in direct_plans(shape) if len(it.plan.passes) == 1]
    gain = time_plan(plan).makespan_ns / min(time_plan(it).makespan_ns for it in apart[:3])
    assert 0.86 < gain < 0.9


@few(3)
@pytest.mark.parametrize(
    "end", [Epilogue(residual=BEFORE), Epilogue(RELU, AFTER), Epilogue(RELU, BEFORE)], ids=str
)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "name",
    ["wan", "hunyuan", "hunyuan, wide", "paired columns beside whole tiles", "grouped", "one tap"],
)
def test_ends(name, cores, end):
    check(CASES[name], LaunchOptions(cores=cores, epilogue=end))


PIECES = {
    "cache and chunk": (conv_shape((1, 40, 5, 6, 7), (24, 40, 3, 3, 3), padding=(0, 1, 1)), (2, 3)),
    "upsampled": (
        conv_shape((1, 40, 5, 4, 5), (24, 40, 3, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)),
        (2, 3),
    ),
    "hunyuan": (hunyuan(20, 16, (4, 3, 4)), (1, 3)),
    "hunyuan, many": (hunyuan(20, 16, (4, 3, 4)), (1, 1, 2)),
    "replicated": (
        conv_shape(
            (2, 20, 3, 4, 5), (8, 20, 5, 3, 3), padding=((4, 4), 1, 1), padding_mode="replicate"
        ),
        (1, 2),
    ),
    "reflected": (
        conv_shape((1, 8, 4, 4, 5), (8, 8, 3, 3, 3), padding=(3, 1, 1), padding_mode="reflect"),
        (1, 3),
    ),
    "grouped": (
        conv_shape((1, 12, 3, 4, 5), (8, 6, 3, 3, 3), padding=1, groups=2, upsample=2),
        (1, 2),
    ),
    "signals": (conv_shape((2, 8, 4, 1, 6), (8, 8, 3, 1, 3), padding=(0, 0, 1)), (2, 2)),
}


@few(5)
@pytest.mark.parametrize("end", [Epilogue(), Epilogue(RELU, AFTER)], ids=["plain", "residual"])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", PIECES)
def test_pieces(name, cores, end):
    shape, frames = PIECES[name]
    check(shape, LaunchOptions(cores=cores, epilogue=end), frames=frames)


@few(2)
@pytest.mark.parametrize("name", PIECES)
def test_pieces_in_a_hardware_loop(name):
    shape, frames = PIECES[name]
    plan = direct_plan(shape, pieces=frames)
    looped = replace(plan, looped=True, rows=plan.row_multiple, lead=(), ahead=False)
    check(shape, LaunchOptions(plans=(looped,)), frames=frames)


def test_an_empty_piece_is_no_piece():
    shape, _ = PIECES["hunyuan"]
    check(shape, frames=(0, 4))


def test_pieces_that_are_not_the_input_are_refused():
    shape, frames = PIECES["hunyuan"]
    x, w, bias, _ = whole_arrays(shape, "bfloat16")
    first, second = cut(x, frames)
    for pieces, message in (
        ([first], "1 frames in all: 4 are needed"),
        ([first, second[:, :, :, 1:]], "a piece of the input"),
        ([first, second.astype(np.float32)], "one type is needed"),
        ([x[0]], "a piece of the input"),
    ):
        with pytest.raises(ShapeError, match=message):
            convolve_shape(pieces, w, bias, shape)


def test_pieces_of_several_launches_are_refused():
    """The arrays take no memory: every element is the same one."""
    frame = np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), (1, 128, 2, 4096, 4096))
    w = np.zeros((8, 128, 3, 1, 1), ml_dtypes.bfloat16)
    with pytest.raises(UnsupportedError, match=r"\(2, 2\) frames.*32 bits.*Concatenate first"):
        convolve_pieces([frame, frame], w)


@few(1)
@pytest.mark.parametrize("name", ["wan", "hunyuan", "thirds, nothing whole", "skipping all axes"])
def test_several_launches(name, monkeypatch):
    """Offsets as small as if memory ended early."""
    shape = CASES[name]
    most = shape.c_out * shape.positions() // 2
    right = launches.launches
    monkeypatch.setattr(launches, "launches", lambda whole: right(whole, most))
    assert len(check(shape).runs) > 1


@pytest.mark.parametrize("number", slow_beyond(3, range(200)))
def test_random_members(number):
    member = random_upsampled(number)
    launch = LaunchOptions(member.machine, member.cores, member.exact, epilogue=member.epilogue)
    check(member.shape, launch, member.dtype, member.pieces)


def test_three_taps_over_twice_are_two_phases_of_two():
    """Output 2q reads inputs q - 1 and q, output 2q + 1 reads q and q + 1: by hand."""
    reduced = fold(CASES["wan"])
    assert reduced.phases == (1, 2, 2)
    assert reduced.reads[WIDTH] == (((0, 0), (1, 1)), ((1, 2), (2, 3)))
    assert reduced.merged[WIDTH] == ((0,), (1, 2), (0, 1), (2,))
    assert reduced.pad[WIDTH] == 1
    assert reduced.merged[DEPTH] == ()


def test_what_is_left_of_a_phase_is_not_computed_twice():
    """Frames are written as they are wanted; only rows and columns are made whole and cropped."""
    shape = CASES["hunyuan"]
    assert shape.out_sizes() == stored_out(shape) == (7, 10, 12)
    odd = CASES["no padding, skipping"]
    assert odd.out_sizes() == (1, 5, 24)
    assert stored_out(odd) == (1, 6, 24)


def test_taps_on_a_single_frame_are_one():
    shape = conv_shape((1, 8, 1, 5, 6), (8, 8, 3, 3, 3), padding=CAUSAL, padding_mode="replicate")
    reduced = fold(shape)
    assert reduced.merged == (((0, 1, 2),), (), ())
    assert reduced.reads[DEPTH] == (((0, 0),),)
    assert reduced.pad[DEPTH] == 0
    check(shape)
    around = replace(shape, pad_after=(2, 1, 1))
    assert fold(around).kernel(DEPTH) == 1
    check(around)


def test_taps_merge_only_if_all_outputs_agree():
    two = conv_shape((1, 8, 2, 5, 6), (8, 8, 3, 3, 3), padding=CAUSAL, padding_mode="replicate")
    assert fold(two).merged[DEPTH] == ((0, 1), (2,))  # frames 0 0 0 and 0 0 1
    check(two)
    three = replace(two, size=(3, 5, 6))
    assert fold(three).merged[DEPTH] == ()
    zeros = replace(two, modes=("zeros", "replicate", "replicate"))
    assert fold(zeros).merged[DEPTH] == ()
    assert fold(zeros).kernel(DEPTH) == 2  # the first meets nothing but zeros


MUTATED = {
    "wan": CASES["wan"],
    "hunyuan": CASES["hunyuan"],
    "single frame": conv_shape(
        (1, 8, 1, 5, 6), (8, 8, 3, 3, 3), padding=CAUSAL, padding_mode="replicate"
    ),
}


@few(1)
@pytest.mark.parametrize("name", MUTATED)
def test_a_tap_that_is_left_out_of_a_sum_shows(name):
    shape = MUTATED[name]
    x, w, bias, _ = whole_arrays(shape, "bfloat16")
    expected = forward(x, w, bias, shape).astype(x.dtype)
    plan = direct_plan(shape)
    tried = 0
    for axis, groups in enumerate(plan.reduced.merged):
        for number, taps in enumerate(groups):
            for tap in taps if len(taps) > 1 else ():
                less = (*groups[:number], tuple(t for t in taps if t != tap), *groups[number + 1 :])
                merged = (*plan.reduced.merged[:axis], less, *plan.reduced.merged[axis + 1 :])
                wrong = replace(plan, reduced=replace(plan.reduced, merged=merged))
                done = convolve_shape([x], w, bias, shape, LaunchOptions(plans=(wrong,)))
                assert not np.array_equal(done.y, expected)
                tried += 1
    assert tried >= 3


def matmul_columns(items):
    """Columns of all matmuls; loop bodies as often as they run."""
    return sum(
        item.trips * matmul_columns(item.body)
        if hasattr(item, "body")
        else item.writes[0].layout.elems
        for item in items
        if hasattr(item, "body") or item.op == "nc_matmul"
    )


def test_eight_of_twenty_seven_taps_are_multiplied():
    """Edges are copied, so every output of every phase has all of its eight taps."""
    shape = hunyuan(128, 128, (3, 8, 16))
    plan = direct_plan(shape)
    assert matmul_columns(trace_plan(plan).trace.items) == 8 * shape.positions()
    assert shape.macs() == 27 * 128 * 128 * 5 * 16 * 32


def repeated(shape):
    """The convolution of an input that was upsampled before."""
    size = [n * u - s for n, u, s in zip(shape.size, shape.upsample, shape.skip, strict=True)]
    return replace(shape, size=tuple(size), upsample=(1, 1, 1), skip=(0, 0, 0))


LAYERS = {
    "HunyuanVideo": (hunyuan(256, 256, (9, 64, 64)), 3.375),
    "Wan": (conv_shape((4, 192, 240, 416), (96, 192, 3, 3), padding=1, upsample=2), 2.25),
}


@few(1)
@pytest.mark.parametrize("name", LAYERS)
def test_the_planner_sees_the_reduced_work(name):
    """Nearly all of the factor by which there are fewer multiplications; see the last column.

    Of the time a tenth may be lost: what iterations of a loop cost does not shrink with the work.
    """
    shape, factor = LAYERS[name]
    taken, long = (direct_plans(asked)[0] for asked in (shape, repeated(shape)))
    assert long.cost.busy_ns("tensor") > 0.95 * factor * taken.cost.busy_ns("tensor")
    assert long.cost.total_ns > 0.9 * factor * taken.cost.total_ns
    assert taken.cost.hbm_bytes < 0.7 * long.cost.hbm_bytes


def test_the_modelled_time_has_the_reduced_work():
    shape = hunyuan(256, 256, (3, 16, 32))
    short, long = (time_plan(direct_plan(asked)).makespan_ns for asked in (shape, repeated(shape)))
    assert long > 2.5 * short


def test_explain_says_what_is_multiplied():
    text = explain(direct_plans(CASES["hunyuan"]), DEFAULT_BUDGET)
    assert "2x2x2 phases of 2x2x2 taps (merged)" in text.splitlines()[0]


@pytest.mark.parametrize(
    ("dtype", "tiny"), [("bfloat16", 2.0**-40), ("float16", 2.0**-24), ("float32", 2.0**-50)]
)
def test_sums_of_filters_are_rounded_once(dtype, tiny):
    """1, half a unit in the last place and next to nothing: more than half, so it is rounded up."""
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    unit = float(ml_dtypes.finfo(kind).eps)
    shape = MUTATED["single frame"]
    for sign in (1, -1):
        for last, expected in ((tiny, 1 + unit), (-tiny, 1.0)):
            taps = np.array([1, unit / 2, last], kind) * kind.type(sign)
            (found,) = merged_filters(taps.reshape(1, 1, 3, 1, 1), fold(shape)).ravel()
            assert float(found) == sign * expected


@few(2)
@pytest.mark.parametrize("name", ["wan", "hunyuan"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_error_of_merging_is_bounded(name, dtype):
    """Rounded filters, sums in float32 (any order), and the rounding of the output."""
    shape = CASES[name]
    x, w, bias = normal_arrays(shape, dtype)
    y = convolve_shape([x], w, bias, shape).y.astype(float)
    exact = forward(x, w, bias, shape)
    scale = forward(abs(x), abs(w), abs(bias), shape)
    unit = float(ml_dtypes.finfo(x.dtype).eps) / 2
    terms = shape.c_in * shape.taps() + 2
    inner = (unit + 2 * terms * 2.0**-24) * scale
    assert (abs(y - exact) <= inner + unit * (abs(exact) + inner)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upsample": 0}, "upsample along width is 0"),
        ({"upsample": 2, "skip": 2}, "skip 2 of positions repeated 2 times along width: 0 to 1"),
        ({"skip": 1}, "skip 1 of positions repeated 1 times"),
        ({"upsample": 2, "skip": -1}, "skip -1"),
        ({"upsample": 2, "stride": 2}, "stride 2 along width, which is upsampled 2 times"),
        ({"upsample": 2, "padding": 1, "padding_mode": "reflect"}, "reflect padding along width"),
        ({"upsample": 2, "padding": 1, "padding_mode": "circular"}, "circular padding along"),
        ({"upsample": 2, "skip": 1, "padding": 1}, "1 zeros before width"),
    ],
)
def test_what_would_not_be_the_same_is_refused(options, message):
    with pytest.raises(ShapeError, match=message):
        conv_shape((1, 3, 8), (4, 3, 3), **options)


def test_modes_without_padding_and_skips_without_zeros_are_allowed():
    for options in (
        {"upsample": 2, "padding_mode": "reflect"},
        {"upsample": 3, "skip": 2, "padding": ((0, 2),)},
        {"upsample": 3, "skip": 2, "padding": 2, "padding_mode": "replicate"},
    ):
        check(conv_shape((1, 3, 8), (4, 3, 3), **options))


def test_gradients_are_refused():
    shape = CASES["wan"]
    with pytest.raises(UnsupportedError, match="input gradient of a convolution that reads"):
        input_gradient_shape(shape)
    with pytest.raises(UnsupportedError, match="weight gradient of a convolution that reads"):
        weight_gradient.plan_for(shape, "trn2", "bfloat16")


def test_a_residual_of_what_is_cropped_is_refused():
    shape = CASES["no padding, skipping"]
    assert stored_out(shape)[HEIGHT] > shape.out_size(HEIGHT)
    with pytest.raises(UnsupportedError, match=r"whole phases.*add it afterwards"):
        check(shape, LaunchOptions(epilogue=Epilogue(residual=BEFORE)))
