"""The `nki.isa` namespace, usually imported as `nisa`."""

from nkisim import enums as constants
from nkisim.enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from nkisim.errors import NkiValidationError
from nkisim.isa.dma import dma_copy
from nkisim.isa.elementwise import reciprocal, scalar_tensor_tensor, tensor_tensor
from nkisim.isa.generation import get_nc_sub_version, get_nc_version
from nkisim.isa.matmul import nc_matmul
from nkisim.isa.move import memset, tensor_copy
from nkisim.isa.operands import NkiInstruction
from nkisim.isa.reduce import tensor_partition_reduce, tensor_reduce, tensor_scalar_reduce
from nkisim.isa.scan import tensor_scalar_cumulative, tensor_tensor_scan
from nkisim.isa.statistics import bn_aggr, bn_stats
from nkisim.isa.tensor_scalar import tensor_scalar
from nkisim.registers import VirtualRegister

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "bn_aggr",
    "bn_stats",
    "constants",
    "dge_mode",
    "dma_copy",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "matmul_perf_mode",
    "memset",
    "nc_matmul",
    "nc_version",
    "oob_mode",
    "reciprocal",
    "reduce_cmd",
    "scalar_engine",
    "scalar_tensor_tensor",
    "tensor_copy",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "unknown_engine",
    "vector_engine",
]
