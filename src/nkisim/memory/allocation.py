"""Allocation: which tensor it is and where it lies, without its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.variable_names import assigned_name

if TYPE_CHECKING:
    from nkisim.memory.layout import MemoryRegion
    from nkisim.source_lines import CallSite, SourceLine


class Allocation:
    """The identity and place of a tensor, without its data; what a Trace refers to.

    `first_use` and `last_use` are instruction numbers in program order, -1 while unused.
    `address_bytes` is None for a tensor that was placed automatically. `sites` are the lines that
    made it, innermost first; `shape` and `dtype` are those it was made with; `is_named`: the kernel
    gave it its name.
    """

    __slots__ = (
        "address_bytes",
        "bytes_per_partition",
        "core",
        "dtype",
        "first_use",
        "index",
        "is_named",
        "last_use",
        "name",
        "partitions",
        "region",
        "shape",
        "sites",
        "start_partition",
    )

    def __init__(
        self,
        index: int,
        name: str,
        region: MemoryRegion,
        partitions: int,
        bytes_per_partition: int,
        place: tuple[int, int] | None = None,
        core: int = 0,
    ) -> None:
        self.index = index
        self.name = name
        self.region = region
        self.partitions = partitions
        self.bytes_per_partition = bytes_per_partition
        self.start_partition = place[0] if place else 0
        self.address_bytes = place[1] if place else None
        self.core = core
        self.first_use = -1
        self.last_use = -1
        self.sites: tuple[CallSite, ...] = ()
        self.shape: tuple[int, ...] = ()
        self.dtype = ""
        self.is_named = False

    @property
    def place(self) -> SourceLine | None:
        """File and line of the kernel that made it."""
        return self.sites[0].place if self.sites else None

    @property
    def variable(self) -> str | None:
        """The variable the kernel keeps the tensor in, if it can be told from the source."""
        return assigned_name(self.sites)

    @property
    def label(self) -> str:
        """What reports call the tensor: the name the kernel gave it, or the variable it is in."""
        return self.name if self.is_named else self.variable or self.name

    def __repr__(self) -> str:
        size = f"{self.partitions}x{self.bytes_per_partition}B"
        return f"Allocation({self.index} {self.name!r} {self.region.value} {size})"
