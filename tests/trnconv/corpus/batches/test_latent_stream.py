"""LatentStream: one sequence for every DataLoader, complete over ranks, and resumed exactly."""

import copy
import json
import pickle
from itertools import chain, islice, zip_longest

import pytest

from latent_corpus import write_latents
from trnconv.corpus import LatentDataset
from trnconv.errors import TrnconvError

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
WORKERS = (0, 2, 3)
LOADERS = ("torch", "torchdata")


@pytest.fixture(scope="module")
def latents(tmp_path_factory):
    """30 latents of two buckets in 6 files of 2 segments: 15 batches of two."""
    return LatentDataset(str(write_latents(tmp_path_factory.mktemp("latents"))))


def stream_of(latents, state=None, **options):
    stream = latents.stream(**{"batch": 2, "buffer_size": 6} | options)
    if state is not None:
        stream.load_state_dict(json.loads(json.dumps(state)))
    return stream


def loader(stream, workers=0, kind="torch", **options):
    if kind == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader
    else:
        from torch.utils.data import DataLoader
    return DataLoader(stream, batch_size=None, num_workers=workers, **options)


def keys(batches):
    return [tuple(batch["key"]) for batch in batches]


def interleaved(ranks):
    """What ranks that take steps together are given, in order."""
    return [batch for step in zip_longest(*ranks) for batch in step if batch is not None]


@pytest.fixture(scope="module")
def epochs(latents):
    """Of one process: what all others must come to."""
    stream = stream_of(latents)
    return [keys(stream) for _ in range(3)]


def test_batches_are_full_across_files_and_every_epoch_has_another_order(latents, epochs):
    assert [len(batch) for batch in epochs[0]] == [2] * 15  # the files have five each
    every = [sorted(chain(*epoch)) for epoch in epochs]
    assert every[0] == every[1] == every[2] == [f"clip{number:03}" for number in range(30)]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert keys(stream_of(latents, seed=1)) != epochs[0]
    for batch in stream_of(latents, batch=4):
        assert len(set(batch["bucket"])) == 1
        assert batch["mean"][:, 0, 0, 0, 0].tolist() == [int(key[-3:]) for key in batch["key"]]


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("persistent", [False, True])
def test_every_number_of_workers_gives_the_same_epochs(latents, epochs, kind, workers, persistent):
    if kind == "torchdata":
        pytest.importorskip("torchdata")
    options = {"persistent_workers": True} if persistent and workers else {}
    batches = loader(stream_of(latents), workers, kind, **options)
    assert [keys(batches) for _ in range(3)] == epochs


@pytest.mark.parametrize("persistent", [False, True])
def test_a_pass_that_is_given_up_is_followed_by_the_next_epoch(latents, epochs, persistent):
    batches = loader(stream_of(latents), 2, persistent_workers=persistent)
    assert keys(islice(batches, 3)) == epochs[0][:3]
    assert keys(batches) == epochs[1]
    stream = stream_of(latents)
    assert keys(islice(stream, 3)) == epochs[0][:3]
    assert keys(stream) == epochs[1]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("world", [1, 2])
def test_ranks_are_disjoint_complete_and_resumed_by_other_ranks_and_workers(
    latents, epochs, workers, world
):
    loaders = [loader(stream_of(latents, rank=rank, world=world), workers) for rank in range(world)]
    assert interleaved(map(keys, loaders)) == epochs[0]
    steps = [list(islice(batches, 3)) for batches in loaders]  # of the second epoch
    assert interleaved(map(keys, steps)) == epochs[1][: 3 * world]
    states = [rank[-1]["state"] for rank in steps]
    assert states == [states[0]] * world
    for ranks, others in ((1, 0), (2, 3), (3, 2)):
        resumed = [
            loader(stream_of(latents, states[0], rank=rank, world=ranks), others)
            for rank in range(ranks)
        ]
        assert interleaved(map(keys, resumed)) == epochs[1][3 * world :]
        assert interleaved(map(keys, resumed)) == epochs[2]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("stop", [0, 4, 15])
@pytest.mark.parametrize("persistent", [False, True])
def test_torchdata_saves_and_loads_what_its_workers_know(
    latents, epochs, workers, stop, persistent
):
    pytest.importorskip("torchdata")
    options = {"persistent_workers": True} if persistent and workers else {}
    batches = loader(stream_of(latents), workers, "torchdata", **options)
    keys(batches)
    iterator = iter(batches)
    assert keys(islice(iterator, stop)) == epochs[1][:stop]
    state = json.loads(json.dumps(batches.state_dict()))
    for resumed in (loader(stream_of(latents), workers, "torchdata", **options), batches):
        resumed.load_state_dict(state)
        assert [keys(resumed), keys(resumed)] == [epochs[1][stop:], epochs[2]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_torchdata_begins_the_next_epoch_after_one_that_was_finished(
    latents, epochs, workers, persistent
):
    pytest.importorskip("torchdata")
    options = {"persistent_workers": True} if persistent and workers else {}
    batches = loader(stream_of(latents), workers, "torchdata", **options)
    keys(batches)
    resumed = loader(stream_of(latents), workers, "torchdata", **options)
    resumed.load_state_dict(batches.state_dict())
    assert [keys(resumed), keys(resumed)] == epochs[1:]


def test_torchdata_refuses_a_workers_state_for_another_in_words(latents):
    pytest.importorskip("torchdata")
    batches = loader(stream_of(latents, rank=0, world=2), 2, "torchdata")
    next(iter(batches))
    for workers, rank, world in ((2, 1, 2), (2, 0, 1), (3, 0, 2)):
        other = loader(stream_of(latents, rank=rank, world=world), workers, "torchdata")
        other.load_state_dict(batches.state_dict())
        with pytest.raises(TrnconvError, match=r'worker 0 of 2, rank 0 of 2.*batch\["state"\]'):
            list(other)


def test_a_state_that_would_be_useless_is_refused(latents, epochs):
    stream = stream_of(latents)
    assert stream.state_dict()["position"] == 0
    batches = loader(stream, 2)
    last = list(islice(batches, 5))[-1]
    with pytest.raises(TrnconvError, match="which read ahead"):
        stream.state_dict()
    stream.load_state_dict(last["state"])  # from here on it is known again
    assert stream.state_dict() == last["state"]
    assert keys(batches) == epochs[0][5:]


def test_a_state_of_another_sequence_is_refused_but_at_its_beginning(latents):
    state = next(iter(stream_of(latents)))["state"]
    for other in ({"seed": 1}, {"batch": 3}, {"buffer_size": 5}):
        with pytest.raises(TrnconvError, match="another sequence of batches"):
            stream_of(latents, state, **other)
        stream_of(latents, {**state, "position": 0}, **other)
    bucket = LatentDataset(latents.folder.url, bucket="32x32x5")
    with pytest.raises(TrnconvError, match=r"latents=30' instead of .*latents=20'"):
        stream_of(bucket, state)


def test_what_is_no_state_is_refused(latents):
    stream = stream_of(latents)
    state = next(iter(stream))["state"]
    for broken in (
        {},
        None,
        {"epoch": 0, "given": 0},
        {**state, "position": -1},
        {**state, "epoch": "1"},
        {**state, "worker": "0"},
    ):
        with pytest.raises(TrnconvError, match="no state of a stream"):
            stream.load_state_dict(broken)


def test_batches_that_a_dataloader_made_have_no_state_and_say_so(latents):
    from torch.utils.data import DataLoader

    stream = latents.stream()
    batch = next(iter(DataLoader(stream, batch_size=4)))
    assert len(batch["key"]) == 4
    with pytest.raises(TrnconvError, match="batch_size=None"):
        stream.load_state_dict(batch["state"])


def test_two_passes_at_once_are_refused(latents):
    stream = stream_of(latents)
    first = iter(stream)
    next(first)
    next(iter(stream))
    with pytest.raises(TrnconvError, match="another pass"):
        next(first)


def test_more_workers_than_before_have_to_be_told_the_epoch(latents, epochs):
    stream = stream_of(latents)
    keys(loader(stream, 2))
    with pytest.raises(TrnconvError, match="another number of workers"):
        keys(loader(stream, 3))
    stream.set_epoch(2)
    assert keys(loader(stream, 3)) == epochs[2]


def test_set_epoch_reaches_workers_that_persist_and_keeps_a_place_that_was_loaded(latents, epochs):
    stream = stream_of(latents)
    batches = loader(stream, 2, persistent_workers=True)
    keys(batches)
    stream.set_epoch(2)
    assert keys(batches) == epochs[2]
    stream.set_epoch(1)
    third = list(islice(batches, 3))[-1]["state"]
    stream.load_state_dict(third)
    stream.set_epoch(1)
    assert keys(batches) == epochs[1][3:]
    stream.load_state_dict(third)
    stream.set_epoch(2)
    assert keys(batches) == epochs[2]
    with pytest.raises(TrnconvError, match="0 or more"):
        stream.set_epoch(-1)


@pytest.mark.parametrize("pickled", [False, True])
def test_a_copy_goes_on_by_itself(latents, epochs, pickled):
    stream = stream_of(latents)
    keys(stream)
    other = pickle.loads(pickle.dumps(stream)) if pickled else copy.deepcopy(stream)  # noqa: S301
    assert [keys(loader(other, 2)), keys(loader(other, 2))] == epochs[1:]
    assert keys(stream) == epochs[1]


@pytest.mark.slow  # two interpreters for each pass
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_are_started_anew_know_the_epoch(latents, epochs, context):
    batches = loader(stream_of(latents), 2, multiprocessing_context=context)
    assert [keys(batches), keys(batches)] == epochs[:2]


@pytest.mark.parametrize("world", [1, 2, 4, 9, 20])
@pytest.mark.parametrize("batch", [None, 1, 4, 50])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_rank_knows_how_much_it_gets(latents, world, batch, drop_last):
    streams = [
        stream_of(latents, rank=rank, world=world, batch=batch, drop_last=drop_last)
        for rank in range(world)
    ]
    batches = [list(stream) for stream in streams]
    assert [len(stream) for stream in streams] == list(map(len, batches))
    if drop_last:
        assert len(set(map(len, batches))) == 1
        assert all(len(b["key"]) == batch for b in chain(*batches) if batch)
    else:
        given = [b["key"] if batch else [b["key"]] for b in chain(*batches)]
        assert len(set(chain(*given))) == len(list(chain(*given))) == 30


def test_ranks_get_equal_numbers_after_a_resume_too(latents):
    state = list(islice(stream_of(latents, world=2), 2))[-1]["state"]  # four of 15 are gone
    resumed = [stream_of(latents, state, rank=rank, world=3, drop_last=True) for rank in range(3)]
    assert [len(list(stream)) for stream in resumed] == [3, 3, 3]
    everybody = [stream_of(latents, rank=rank, world=2, drop_last=True) for rank in range(2)]
    loaders = [loader(stream, 2, persistent_workers=True) for stream in everybody]
    assert [len(list(batches)) for batches in loaders * 2] == [7] * 4


def test_the_order_of_files_is_theirs_without_a_seed(latents):
    stream = latents.stream(seed=None)
    first = [item["key"] for item in stream]
    assert first == [f"clip{number:03}" for number in range(30)]
    assert [item["key"] for item in stream] == first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 2, "world": 2}, "a rank is from 0 to 1"),
        ({"rank": 1}, "a rank is from 0 to 0"),
        ({"batch": 0}, "at least 1"),
        ({"seed": -1}, "0 or more"),
        ({"buffer_size": -1}, "0 or more"),
        ({"seed": None, "buffer_size": 5}, "without a seed"),
    ],
)
def test_options_that_make_no_sense_are_refused(latents, options, words):
    with pytest.raises(TrnconvError, match=words):
        latents.stream(**options)


def test_ranks_of_a_group_have_to_say_what_they_read(latents, monkeypatch):
    from torch import distributed

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    with pytest.raises(TrnconvError, match="a group of 2 ranks: name rank= and world="):
        latents.stream()
    assert len(latents.stream(world=1)) == 30


def test_a_corpus_without_latents_is_an_empty_stream(tmp_path):
    nothing = LatentDataset(str(write_latents(tmp_path, segments=1, files=0)))
    assert list(nothing.stream(batch=2)) == list(loader(nothing.stream(batch=2), 2)) == []
