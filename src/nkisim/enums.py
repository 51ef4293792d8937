"""The enumerations of nki.isa. Names and values are NKI's."""

from __future__ import annotations

from enum import Enum, IntEnum


class engine(Enum):  # noqa: N801 (NKI's name)
    """NeuronCore engines."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    sync = 6
    unknown = 0

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python


class reduce_cmd(Enum):  # noqa: N801 (NKI's name)
    """What an instruction does with its engine's accumulator registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):  # noqa: N801 (NKI's name)
    """Who writes the DMA descriptors."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):  # noqa: N801 (NKI's name)
    """What a run-time index outside the tensor does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):  # noqa: N801 (NKI's name)
    """Fast modes of the Tensor engine."""

    none = "none"
    double_row = "double_row"


class nc_version(IntEnum):  # noqa: N801 (NKI's name)
    """NeuronCore generations, in order: kernels write `get_nc_version() >= nc_version.gen3`."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):  # noqa: N801 (NKI's name)
    """Which DMA engine carries a core-to-core transfer."""

    dma = 1
    gpsimd_dma = 2
