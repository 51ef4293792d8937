"""PyTorch front end: torch's own functions and modules, on trnconv's kernels."""

try:
    import torch as _torch  # noqa: F401 (said in words here, before any module asks for it)
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "trnconv.pytorch needs torch, which is not installed. Run `pip install 'trnconv[torch]'`;"
        " trnconv.conv3d takes NumPy arrays, without torch.",
        name="torch",
    ) from missing

from trnconv.pytorch import functional, nn
from trnconv.pytorch.backends.adapters import use_adapter
from trnconv.pytorch.backends.choice import Backend, backend, choose_backend
from trnconv.pytorch.backends.packed_weights import forget_packed_weights
from trnconv.pytorch.calibration import calibrate
from trnconv.pytorch.causal import causal_conv3d
from trnconv.pytorch.lazy.tensors.context import Rewrites
from trnconv.pytorch.operators import flops
from trnconv.pytorch.operators.checkpoint_policy import keep_convolutions
from trnconv.pytorch.operators.launch_graph import with_launches
from trnconv.pytorch.patching import PatchReport, patch_, patched, unpatch_
from trnconv.pytorch.stream_state import StreamState
from trnconv.pytorch.streaming import decode_in_chunks, encode_in_chunks

flops.register()

__all__ = [
    "Backend",
    "PatchReport",
    "Rewrites",
    "StreamState",
    "backend",
    "calibrate",
    "causal_conv3d",
    "choose_backend",
    "decode_in_chunks",
    "encode_in_chunks",
    "forget_packed_weights",
    "functional",
    "keep_convolutions",
    "nn",
    "patch_",
    "patched",
    "unpatch_",
    "use_adapter",
    "with_launches",
]
