"""vllm-omni-neuron, AWS's video server: every convolution of its Wan autoencoder on our kernels.

Facts of its release 0.24.0.0.1.0 (September 2026). It sends 3x3x3 convolutions of stride 1 with 96
channels or more and at least two output frames to nki-library's conv3d, 3x3 convolutions behind
upsampling too, lifted to 3-D; the rest is left to the compiler, the first frame and the encoder
included. `install_` serves all of them; `routes` says what goes where without it.
"""

from trnconv.integrations.vllm_omni_neuron.install import ServedReport, install_, uninstall_
from trnconv.integrations.vllm_omni_neuron.prices import (
    ChunkReport,
    chunk_reports,
    modelled_ns,
)
from trnconv.integrations.vllm_omni_neuron.routes import COMPILER, Route, route_of
from trnconv.integrations.vllm_omni_neuron.sites import SiteCall, chunks_of, site_calls

__all__ = [
    "COMPILER",
    "ChunkReport",
    "Route",
    "ServedReport",
    "SiteCall",
    "chunk_reports",
    "chunks_of",
    "install_",
    "modelled_ns",
    "route_of",
    "site_calls",
    "uninstall_",
]
