"""Memory of one core: placing tensors, refusing what does not fit, and the peak over a run.

Automatically placed tensors live from the first to the last instruction that touches them, in
program order: the least any compiler can do with. Manually placed ones keep their bytes for the
whole kernel. PSUM is given out in whole banks.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from operator import index as as_int
from typing import TYPE_CHECKING

from nkisim.errors import MemoryLimitError, NkiValidationError
from nkisim.memory.accumulation import Accumulation
from nkisim.memory.aliasing import link
from nkisim.memory.allocation import Allocation
from nkisim.memory.layout import ON_CHIP, MemoryRegion
from nkisim.memory.storage import Storage
from nkisim.numerics import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.machine import Machine
    from nkisim.memory.hbm_room import HbmRoom

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """The most a run held at one time."""

    sbuf_peak_bytes_per_partition: int
    psum_peak_banks: int
    hbm_bytes: int


class Memory:
    """SBUF, PSUM and private HBM of one core."""

    def __init__(self, machine: Machine, core: int, *, with_values: bool, precise: bool) -> None:
        self._machine = machine
        self._core = core
        self._with_values = with_values
        self._precise = precise
        self._placed: list[weakref.ref[Storage]] = []
        self._names: set[str] = set()
        self.hbm: HbmRoom | None = None  # of the launch; None where nothing counts it
        self.replaying = False  # later iterations of a loop: the tensors of the first, again
        self.allocations: list[Allocation] = []
        self.next_index = 0  # of the next tensor; later iterations count as the first one did

    def allocate(
        self,
        shape: Sequence[int],
        dtype: str,
        region: MemoryRegion,
        name: str | None = None,
        address: tuple[int, int] | None = None,
    ) -> Storage:
        """A fresh, poisoned storage; `address` is (partition, byte) for manual placement."""
        sizes = _checked_shape(shape)
        kind = dtypes.canonical(dtype)
        label = self._name(name, region)
        if region in ON_CHIP:
            partitions = sizes[0]
            row_bytes = math.prod(sizes[1:]) * dtypes.itemsize_bytes(kind)
            self._check_fits(label, region, partitions, row_bytes)
        else:
            partitions, row_bytes = 1, math.prod(sizes) * dtypes.itemsize_bytes(kind)
        if address is not None:
            unit = self._address_unit_bytes(region, kind)
            self._check_address(label, region, (partitions, row_bytes), address, unit)
        allocation = Allocation(
            self.next_index, label, region, partitions, row_bytes, address, self._core
        )
        self.next_index += 1
        if not self.replaying:
            self.allocations.append(allocation)
            if self.hbm is not None and region not in ON_CHIP:
                self.hbm.take(label, row_bytes)
        storage = Storage(
            allocation, sizes, kind, with_values=self._with_values, precise=self._precise
        )
        if region is MemoryRegion.psum:
            storage.accumulation = Accumulation(
                partitions, storage.free_elems, dtypes.itemsize_bytes(kind)
            )
        if address is not None:
            link(storage, self._placed)
            self._placed = [known for known in self._placed if known() is not None]
            self._placed.append(weakref.ref(storage))
        return storage

    def use(self) -> MemoryUse:
        """Peaks of the run so far; refuses a run that needed more than there is."""
        machine = self._machine
        sbuf = [a for a in self.allocations if a.region is MemoryRegion.sbuf]
        psum = [a for a in self.allocations if a.region is MemoryRegion.psum]
        unit = machine.psum_bank_bytes_per_partition
        sbuf_peak = _peak(sbuf, machine.sbuf_align_bytes)
        psum_peak = _peak(psum, unit)
        _refuse_over(sbuf, sbuf_peak, machine.sbuf_usable_bytes_per_partition, machine)
        _refuse_over(psum, psum_peak, machine.psum_bytes_per_partition, machine)
        hbm = sum(a.bytes_per_partition for a in self.allocations if a.region not in ON_CHIP)
        return MemoryUse(
            sbuf_peak_bytes_per_partition=sbuf_peak.units,
            psum_peak_banks=psum_peak.units // unit,
            hbm_bytes=hbm,
        )

    def _name(self, name: str | None, region: MemoryRegion) -> str:
        label = name or self._free_name(region)
        if self.replaying:
            return label
        if label in self._names:
            raise NkiValidationError(
                f"second tensor named {label!r}",
                instruction="nl.ndarray",
                limit="tensor names are unique within a kernel",
                remedy="leave the name out, or number it",
            )
        self._names.add(label)
        return label

    def _free_name(self, region: MemoryRegion) -> str:
        number = self.next_index
        if self.replaying:
            return f"{region.value}_{number}"
        while (label := f"{region.value}_{number}") in self._names:
            number += 1
        return label

    def _check_fits(self, name: str, region: MemoryRegion, partitions: int, row: int) -> None:
        machine = self._machine
        if partitions > machine.partitions:
            raise MemoryLimitError(
                f"tensor {name!r} with {partitions} partitions",
                instruction="nl.ndarray",
                limit=f"{machine.partitions} partitions in {region.value}",
                remedy="tile the first dimension",
            )
        capacity = self._capacity_bytes(region)
        if row > capacity:
            raise MemoryLimitError(
                f"tensor {name!r} needs {row} bytes per partition",
                instruction="nl.ndarray",
                limit=f"{region.value} of {machine.name} holds {capacity} bytes per partition",
                remedy="split the tensor along a free dimension",
            )

    def _address_unit_bytes(self, region: MemoryRegion, dtype: str) -> int:
        """A bank in PSUM; in SBUF `sbuf_min_align`, or less for the types that are narrower.

        nki-library places 2-byte tiles at odd multiples of 2 (conv1d, qkv_cte, mlp_cte), and slices
        that begin there are legal in any case.
        """
        if region is MemoryRegion.psum:
            return self._machine.psum_bank_bytes_per_partition
        return min(self._machine.sbuf_align_bytes, dtypes.itemsize_bytes(dtype))

    def _check_address(
        self,
        name: str,
        region: MemoryRegion,
        size: tuple[int, int],
        address: tuple[int, int],
        unit_bytes: int,
    ) -> None:
        machine = self._machine
        if region not in ON_CHIP:
            raise NkiValidationError(
                f"address={address} for tensor {name!r} in {region.value}",
                instruction="nl.ndarray",
                limit="manual placement exists for SBUF and PSUM",
                remedy="leave the address out",
            )
        if len(address) != 2:
            raise NkiValidationError(
                f"address={address} for tensor {name!r}",
                instruction="nl.ndarray",
                limit="a pair: first partition, first byte in the partition",
                remedy="pass both",
            )
        partition, byte = address
        if partition % machine.quadrant_partitions or byte % unit_bytes or min(address) < 0:
            psum = region is MemoryRegion.psum
            raise MemoryLimitError(
                f"address={address} for tensor {name!r}",
                instruction="nl.ndarray",
                limit=f"partition a multiple of {machine.quadrant_partitions}, byte a multiple of"
                f" {unit_bytes} B{' (a PSUM bank)' if psum else ''}",
                remedy="round the address",
            )
        capacity = self._capacity_bytes(region)
        if partition + size[0] > machine.partitions or byte + size[1] > capacity:
            raise MemoryLimitError(
                f"tensor {name!r} of {size[0]} partitions x {size[1]} bytes at {address}",
                instruction="nl.ndarray",
                limit=f"{machine.partitions} partitions x {capacity} bytes in {region.value} of"
                f" {machine.name}",
                remedy="place it lower, or make it smaller",
            )

    def _capacity_bytes(self, region: MemoryRegion) -> int:
        if region is MemoryRegion.psum:
            return self._machine.psum_bytes_per_partition
        return self._machine.sbuf_usable_bytes_per_partition


@dataclass(frozen=True)
class _Peak:
    units: int  # bytes per partition, in whole allocation units
    moment: int  # instruction number


def _peak(allocations: list[Allocation], unit: int) -> _Peak:
    """Manual bytes (their union) plus the largest sum of automatic tensors alive together."""
    touched = [a for a in allocations if a.first_use >= 0]
    manual = _union_bytes([a for a in touched if a.address_bytes is not None], unit)
    events: list[tuple[int, int, int]] = []
    for a in touched:
        if a.address_bytes is None:
            size = _rounded(a.bytes_per_partition, unit)
            events.append((a.first_use, 1, size))
            events.append((a.last_use + 1, 0, -size))
    events.sort()
    now = best = 0
    moment = touched[0].first_use if touched else 0
    for when, _, change in events:
        now += change
        if now > best:
            best, moment = now, when
    return _Peak(manual + best, moment)


def _union_bytes(manual: list[Allocation], unit: int) -> int:
    spans = sorted(
        (a.address_bytes or 0, (a.address_bytes or 0) + _rounded(a.bytes_per_partition, unit))
        for a in manual
    )
    total = reached = 0
    for low, high in spans:
        total += max(0, high - max(low, reached))
        reached = max(reached, high)
    return total


def _refuse_over(tensors: list[Allocation], peak: _Peak, capacity: int, machine: Machine) -> None:
    if peak.units <= capacity:
        return
    alive = [a for a in tensors if 0 <= a.first_use <= peak.moment <= a.last_use]
    alive.sort(key=lambda a: -a.bytes_per_partition)
    largest = ", ".join(f"{_named(a)} {a.bytes_per_partition} B" for a in alive[:4])
    region = tensors[0].region.value
    raise MemoryLimitError(
        f"instruction {peak.moment} has tensors of {peak.units} bytes per partition alive in"
        f" {region} (largest: {largest})",
        limit=f"{region} of {machine.name} holds {capacity} bytes per partition",
        remedy="use smaller tiles, or stop using a tensor before the next one is written",
        place=alive[0].place if alive else None,
    )


def _named(allocation: Allocation) -> str:
    place = allocation.place
    return repr(allocation.label) + (f" ({place.text})" if place else "")


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _checked_shape(shape: Sequence[int]) -> Shape:
    sizes = tuple([as_int(size) for size in shape])
    if not sizes or min(sizes) < 1:
        raise NkiValidationError(
            f"shape {tuple(shape)}",
            instruction="nl.ndarray",
            limit="at least one dimension, every size at least 1 element",
            remedy="skip the tensor when there is nothing to hold",
        )
    return sizes
