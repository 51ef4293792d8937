"""Ranks that differ are named, with what differs, before anything wrong is computed."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

import sharded_models as ours
from ranks import Ranks
from small_vae import built
from trnconv.parallel.agreement import WeightDigests, difference

BOUND_S = 15.0  # all is known when statements are read; looking at a watch takes a second


@pytest.mark.torch
def test_the_odd_one_is_named_with_both_values():
    said = [{"a": "1", "b": "2"}, {"a": "1", "b": "2"}, {"a": "1", "b": "3"}]
    assert difference(said) == "rank 2 of 3 differs in b: 3 on rank 2, 2 on rank 0"
    assert difference(said[:2]) == ""


@pytest.mark.torch
def test_what_only_one_rank_says_is_a_difference_and_of_two_rank_zero_is_right():
    found = difference([{}, {"a": "1"}])
    assert found == "rank 1 of 2 differs in a: 1 on rank 1, nothing on rank 0"


@pytest.mark.torch
def test_a_long_list_is_cut():
    names = [f"the weight {n}" for n in range(9)]
    found = difference([dict.fromkeys(names, "1"), dict.fromkeys(names, "2")])
    assert found.count("the weight") == 3
    assert found.endswith("; and 6 more")


@pytest.mark.torch
def test_every_weight_counts_and_a_write_is_noticed():
    model = built()
    weights = WeightDigests(model)
    before = weights.digest()
    assert weights.digest() == before == WeightDigests(built()).digest()
    with torch.no_grad():
        model.up.bias[0] += 2.0**-20
    after = weights.digest()
    assert after != before
    permuted = built()
    with torch.no_grad():
        permuted.up.weight.copy_(permuted.up.weight.flip(0))
    assert WeightDigests(permuted).digest() not in (before, after)


@pytest.fixture
def three(tmp_path):
    """Ranks whose group is broken afterwards: rows are on their way that nobody receives."""
    started = Ranks(3, tmp_path)
    yield started
    started.end()


def require_named(answers, words):
    assert max(seconds for seconds, _ in answers) < BOUND_S
    for _, text in answers:
        assert text.startswith("RanksDifferError: "), text
        assert "rank 1 of 3 differs in" in text, text
        assert words in text, text


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("weights", "the weight reflecting.weight"),
        ("options", "the option overlap: never on rank 1, auto on rank 0"),
        ("environment", "the variable NEURON_CC_FLAGS: --fast on rank 1,  on rank 0"),
    ],
)
def test_a_rank_that_differs_from_the_start_is_named_by_all(ranks, what, words):
    """Nothing was sent, so the group can be used again."""
    require_named(ranks.run(3, ours.differing, what, 1), words)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("shape", "the video: (1, 3, 3, 18, 12) torch.float32 on rank 1, (1, 3, 3, 16, 12)"),
        ("frames", "the first input: (1, 3, 5, 16, 12) with 5 frames, torch.float32 on rank 1"),
        ("written", "the weights: "),
        ("values", "the values of the video: CRC "),
    ],
)
def test_a_rank_that_changes_is_named_by_all(three, what, words):
    """By itself at once, and by those for whom nothing changed and who wait for it."""
    require_named(three.run(3, ours.differing, what, 1), words)


@pytest.mark.distributed
def test_ranks_that_agree_go_on_and_may_change_together(ranks):
    for shapes in ranks.run(3, ours.agreeing):
        assert shapes == [(1, 3, 3, 16, 12), (1, 3, 3, 20, 12), (1, 3, 2, 16, 12)]


@pytest.mark.distributed
@pytest.mark.parametrize(("what", "odd"), [("weights", 0), ("frames", 0), ("frames", 1)])
def test_when_rank_zero_leaves_with_the_store_the_others_know_why(tmp_path, what, odd):
    """Launchers have rank 0 host the store; it must not end before the others have read it."""
    started = Ranks(3, tmp_path, is_served=True)
    try:
        started.send(3, ours.ended_by_rank_zero, what, odd)
        for worked, (seconds, text) in started.answers([1, 2], 4 * BOUND_S):
            assert worked
            assert text.startswith("RanksDifferError: "), text
            assert f"rank {odd} of 3 differs in" in text, text
            assert seconds < BOUND_S
    finally:
        started.end()


@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["bands", "tiles"])
@pytest.mark.parametrize("values", ["moved", "off by a bit"])
def test_other_values_of_the_same_shape_are_noticed_before_anything_is_sent(ranks, kind, values):
    """So that the group can be used again."""
    for text in ranks.run(2, partial(ours.same_or_not, check_values=True), kind, values):
        assert text.startswith("RanksDifferError: ranks disagree on the next video: rank 1"), text
        assert "the values of the video: CRC " in text


@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["bands", "tiles"])
def test_values_are_compared_as_they_are_and_only_if_asked(ranks, kind):
    same = partial(ours.same_or_not, check_values=True)
    assert ranks.run(2, same, kind, "laid out otherwise") == ["nothing was noticed"] * 2
    unchecked = partial(ours.same_or_not, check_values=False)
    assert ranks.run(2, unchecked, kind, "moved") == ["nothing was noticed"] * 2
