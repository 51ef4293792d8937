"""Convolutions of networks for images, derived from their published structures.

A check that nothing here is about video only. No code and no weights of theirs: each file follows
the paper that it names, and the tests hold it against the parameters and multiply-adds that were
published.
"""

from benchmarks.image_networks.deconvolution import deconvolution_head
from benchmarks.image_networks.detector import detector
from benchmarks.image_networks.layers import ImageLayer, ImageNetwork
from benchmarks.image_networks.mobile import mobile
from benchmarks.image_networks.residual import residual_network
from benchmarks.image_networks.unet import unet

NETWORKS = {
    "resnet-50": residual_network,
    "detector": detector,
    "sdxl-unet": unet,
    "mobilenet-v2": mobile,
    "deconvolution-head": deconvolution_head,
}

__all__ = ["NETWORKS", "ImageLayer", "ImageNetwork"]
