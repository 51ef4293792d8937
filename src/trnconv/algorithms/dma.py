"""What transfers take by the cost model: their issue, and descriptors on the DMA engines.

Descriptors are built before the kernel starts (trn1, outside of hardware loops) or by the device;
`looped` tells whether a transfer stands in a hardware loop.
"""

from __future__ import annotations

from nkisim.machine import Timing
from nkisim.timing.costs.dma import PREBUILT


def issue_ns(timing: Timing, *, looped: bool = False) -> float:
    """What the queue spends on one DMA."""
    if timing.dma_default_mode != PREBUILT:
        return timing.dma_issue_hwdge_ns
    return timing.dma_issue_swdge_ns if looped else timing.dma_issue_static_ns


def latency_ns(timing: Timing, *, looped: bool = False) -> float:
    """From its turn in the queue to its end, without its data."""
    return issue_ns(timing, looped=looped) + timing.dma_start_ns + timing.dma_done_ns


def descriptor_ns(
    timing: Timing, run_bytes: float, *, looped: bool = False, rate: float = 1.0
) -> float:
    """A run of so many bytes, on one DMA engine that moves at a part of its rate."""
    rings = timing.dma_default_mode == PREBUILT and not looped
    floor = timing.dma_ring_floor_ns if rings else timing.dma_descriptor_floor_ns
    return max(floor, run_bytes / rate / timing.dma_bytes_per_ns) + (
        timing.dma_descriptor_overhead_ns
    )


def fence_ns(timing: Timing, output_bytes: float) -> float:
    """A copy of an output onto itself, in packets, after everything else."""
    packet = timing.dma_packet_bytes
    return latency_ns(timing) + moved_ns(timing, output_bytes / packet, packet)


def moved_ns(
    timing: Timing, descriptors: float, run_bytes: float, *, looped: bool = False
) -> float:
    """Descriptors on all DMA engines together."""
    return descriptors * descriptor_ns(timing, run_bytes, looped=looped) / timing.dma_engines
