"""The `nki.isa` namespace, usually imported as `nisa`."""

import sys
from collections.abc import Sequence

import nkisim.isa.assignment  # noqa: F401 (defines `tile[...] = value`)
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
from nkisim.isa.activate2 import activate2
from nkisim.isa.activation import activation, activation_reduce
from nkisim.isa.affine import affine_select, iota
from nkisim.isa.cores import core_barrier, sendrecv
from nkisim.isa.dma import dma_copy
from nkisim.isa.dma_compute import dma_compute
from nkisim.isa.elementwise import reciprocal, scalar_tensor_tensor, tensor_tensor
from nkisim.isa.exponential import exponential
from nkisim.isa.gather import local_gather, nc_n_gather
from nkisim.isa.generation import get_nc_sub_version, get_nc_version
from nkisim.isa.gpsimd_search import nonzero_with_count, sequence_bounds, topk
from nkisim.isa.matmul import nc_matmul
from nkisim.isa.move import memset, tensor_copy
from nkisim.isa.mx import nc_matmul_mx, quantize_mx
from nkisim.isa.operands import NkiInstruction
from nkisim.isa.random import dropout, rand2, rand_get_state, rand_set_state, rng, set_rng_seed
from nkisim.isa.reduce import tensor_partition_reduce, tensor_reduce, tensor_scalar_reduce
from nkisim.isa.registers import register_alloc, register_load, register_move, register_store
from nkisim.isa.run_time_scalars import scalar_load, scalar_store
from nkisim.isa.scan import tensor_scalar_cumulative, tensor_tensor_scan
from nkisim.isa.search import max8, nc_find_index8, nc_match_replace8
from nkisim.isa.select import range_select, select_reduce, tensor_copy_predicated
from nkisim.isa.shuffle import nc_stream_shuffle
from nkisim.isa.statistics import bn_aggr, bn_stats
from nkisim.isa.tensor_scalar import tensor_scalar
from nkisim.isa.transpose import dma_transpose, nc_transpose
from nkisim.memory.layout import MemoryRegion
from nkisim.numerics.operators.operator import Operator
from nkisim.public_calls import open_methods, open_namespace
from nkisim.tensors.registers import VirtualRegister
from nkisim.tensors.scalars import NkiScalar
from nkisim.tensors.strided_tensor import StridedTensor
from nkisim.tensors.tensor import NkiTensor

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

__all__ = [
    "NkiInstruction",
    "NkiScalar",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "constants",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "nonzero_with_count",
    "oob_mode",
    "quantize_mx",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "rng",
    "scalar_engine",
    "scalar_load",
    "scalar_store",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "sequence_bounds",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "topk",
    "unknown_engine",
    "vector_engine",
]

KINDS = {
    "Sequence": Sequence,
    "NkiTensor": NkiTensor,
    "VirtualRegister": VirtualRegister,
    "MemoryRegion": MemoryRegion,
    "Operator": Operator,
}  # named in annotations of modules that import them for the type checker only

open_namespace(sys.modules[__name__], "nisa", KINDS)
open_methods(StridedTensor, "tensor", KINDS)
open_methods(NkiTensor, "tensor", KINDS)
open_methods(NkiInstruction, "instruction", KINDS)
