"""StreamState: a saved stream goes on in another process with the bits of one that ran on."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from yardstick import limit_s

torch = pytest.importorskip("torch")

from three_way import rounded
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.models import find
from trnconv.pytorch import StreamState, decode_in_chunks, encode_in_chunks, patch_
from trnconv.pytorch.model_builder import build

pytestmark = pytest.mark.diffusers

SOURCES = Path(__file__).parents[3] / "src"
STREAMS = {"decode": decode_in_chunks, "encode": encode_in_chunks}
# Of latents or frames; saved after the first two.
LENGTHS = {
    ("wan2.1", "decode"): [1, 1, 2, 1],
    ("wan2.1", "encode"): [1, 4, 4, 8],
    ("wan2.2-5b", "decode"): [1, 1, 2, 1],
    ("wan2.2-5b", "encode"): [1, 4, 4, 8],
    ("qwen-image", "decode"): [1, 1, 2, 1],
    ("cogvideox", "decode"): [3, 2, 2],
    ("cogvideox", "encode"): [9, 8, 8],
}
MODES = {
    "unpatched": None,
    "patched": {"backend": "nkisim"},
    "reproducible": {"backend": "nkisim", "reproducible": True},
}
ELSEWHERE = """
import sys
import torch
from trnconv.models import find
from trnconv.pytorch import StreamState, decode_in_chunks, encode_in_chunks, patch_
from trnconv.pytorch.model_builder import build

torch.set_num_threads(1)
name, phase, options, folder = sys.argv[1:]
model = build(find(name), reduced=True, dtype=torch.bfloat16)
if (options := eval(options)) is not None:
    patch_(model, **options)
stream = {"decode": decode_in_chunks, "encode": encode_in_chunks}[phase]
chunks = torch.load(f"{folder}/chunks.pt")
state = StreamState.load(f"{folder}/stream.safetensors")
torch.save(list(stream(model, chunks, state=state)), f"{folder}/frames.pt")
"""


def chunks_of(name, phase, lengths):
    entry = find(name)
    generator = torch.Generator().manual_seed(0)
    if phase == "decode":
        shape = (1, entry.reduced_latent_channels, sum(lengths), 2, 3)
    else:
        shape = (1, 3, sum(lengths), 2 * entry.compression[1], 3 * entry.compression[2])
    return list(rounded(torch.randn(shape, generator=generator)).bfloat16().split(lengths, 2))


def model_of(name, options):
    model = build(find(name), reduced=True, dtype=torch.bfloat16)
    if options is not None:
        patch_(model, **options)
    return model


def in_another_process(name, phase, options, folder):
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, name, phase, repr(options), str(folder)],
        env={"PYTHONPATH": str(SOURCES), "PATH": ""},
        timeout=limit_s(300),
        check=True,
    )
    return torch.load(folder / "frames.pt")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "phase"), LENGTHS)
def test_another_process_goes_on_with_the_same_bits(name, phase, mode, tmp_path):
    options = MODES[mode]
    chunks = chunks_of(name, phase, LENGTHS[name, phase])
    uninterrupted = list(STREAMS[phase](model_of(name, options), chunks))
    state = StreamState()
    begun = list(STREAMS[phase](model_of(name, options), chunks[:2], state=state))
    state.save(tmp_path / "stream.safetensors")
    torch.save(chunks[2:], tmp_path / "chunks.pt")
    resumed = in_another_process(name, phase, options, tmp_path)
    assert len(begun + resumed) == len(uninterrupted) == len(chunks)
    for ours, expected in zip(begun + resumed, uninterrupted, strict=True):
        assert torch.equal(ours, expected)


def test_a_stream_without_its_state_would_differ():
    chunks = chunks_of("wan2.1", "decode", [1, 1, 1])
    model = model_of("wan2.1", None)
    whole = list(decode_in_chunks(model, chunks))
    state = StreamState()
    list(decode_in_chunks(model, chunks[:2], state=state))
    at = next(at for at, kept in enumerate(state.kept) if isinstance(kept, torch.Tensor))
    state.kept[at] = torch.zeros_like(state.kept[at])
    assert not torch.equal(next(decode_in_chunks(model, chunks[2:], state=state)), whole[2])


@pytest.mark.parametrize("name", ["wan2.1", "cogvideox"])
@pytest.mark.parametrize("is_patched", [True, False], ids=["patched", "unpatched"])
def test_saving_after_every_chunk_changes_nothing(name, is_patched, tmp_path):
    lengths = LENGTHS[name, "decode"]
    chunks = chunks_of(name, "decode", lengths)
    model = model_of(name, {"backend": "torch"} if is_patched else None)
    expected = list(decode_in_chunks(model, chunks))
    state, path = StreamState(), tmp_path / "stream.safetensors"
    for at, frames in enumerate(decode_in_chunks(model, chunks, state=state)):
        state.save(path)
        assert torch.equal(frames, expected[at])
        following = decode_in_chunks(model, chunks[at + 1 :], state=StreamState.load(path))
        for ours, theirs in zip(following, expected[at + 1 :], strict=True):
            assert torch.equal(ours, theirs)
    assert [file.name for file in tmp_path.iterdir()] == ["stream.safetensors"]


def test_a_state_dict_shares_no_memory_with_the_stream():
    chunks = chunks_of("wan2.1", "decode", [1, 1, 1])
    model = model_of("wan2.1", None)
    expected = list(decode_in_chunks(model, chunks))[2]
    state = StreamState()
    list(decode_in_chunks(model, chunks[:2], state=state))
    tensors = state.state_dict()
    other = StreamState()
    other.load_state_dict(tensors)
    storages = [each.untyped_storage().data_ptr() for each in tensors.values()]
    assert len(set(storages)) == len(tensors) > 2
    for tensor in tensors.values():
        tensor.zero_()
    for each in (state, other, pickle.loads(pickle.dumps(other))):  # noqa: S301 (our own)
        assert torch.equal(next(decode_in_chunks(model, chunks[2:], state=each)), expected)


def test_a_new_state_is_the_beginning(tmp_path):
    StreamState().save(tmp_path / "new.safetensors")
    state = StreamState.load(tmp_path / "new.safetensors")
    chunks = chunks_of("wan2.1", "decode", [2])
    model = model_of("wan2.1", None)
    frames = next(decode_in_chunks(model, chunks, state=state))
    assert torch.equal(frames, next(decode_in_chunks(model, chunks)))


def test_layouts_and_words_come_back():
    state, other = StreamState(), StreamState()
    frames = torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    state.kept = ["Rep", None, frames, {"a": {"b": frames[:, :, 1:]}, "a.b": 3, "entries": True}]
    other.load_state_dict(state.state_dict())
    assert other.kept[:2] == ["Rep", None]
    assert other.kept[2].stride() == frames.stride()
    assert torch.equal(other.kept[2], frames)
    assert torch.equal(other.kept[3].pop("a")["b"], frames[:, :, 1:])
    assert other.kept[3] == {"a.b": 3, "entries": True}


def test_states_of_other_streams_are_refused(tmp_path):
    chunks = chunks_of("wan2.1", "decode", [1, 1])
    model, state = model_of("wan2.1", None), StreamState()
    list(decode_in_chunks(model, chunks[:1], state=state))
    wider = torch.zeros(1, chunks[0].shape[1], 1, 2, 4, dtype=torch.bfloat16)
    with pytest.raises(ShapeError, match=r"number of frames only.*each video"):
        next(decode_in_chunks(model, [wider], state=state))
    with pytest.raises(ShapeError, match=r"that of another model.*slots"):
        encode_in_chunks(model, [], state=state)
    with pytest.raises(ShapeError, match="nested dictionaries"):
        decode_in_chunks(model_of("cogvideox", None), [], state=state)
    with pytest.raises(UnsupportedError, match="no 'about'"):
        StreamState().load_state_dict({"weight": torch.zeros(1)})
    saved = state.state_dict()
    text = bytes(saved["about"].tolist()).replace(b'"format": 1', b'"format": 9')
    saved["about"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    with pytest.raises(UnsupportedError, match="format 9"):
        StreamState().load_state_dict(saved)
    state.kept[0] = object()
    with pytest.raises(UnsupportedError, match="a cache with a object"):
        state.save(tmp_path / "stream.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_chunk_that_failed_leaves_no_state(tmp_path):
    chunks = chunks_of("wan2.1", "decode", [1, 1])
    model, state = model_of("wan2.1", None), StreamState()
    list(decode_in_chunks(model, chunks[:1], state=state))
    hook = model.decoder.conv_out.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(decode_in_chunks(model, chunks[1:], state=state))
    hook.remove()
    with pytest.raises(UnsupportedError, match="middle of a chunk"):
        next(decode_in_chunks(model, chunks[1:], state=state))
    with pytest.raises(UnsupportedError, match="Save between chunks"):
        state.save(tmp_path / "stream.safetensors")
