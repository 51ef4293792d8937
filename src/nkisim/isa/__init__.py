"""The `nki.isa` namespace."""

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
from nkisim.isa.matmul import nc_matmul
from nkisim.isa.move import memset, tensor_copy
from nkisim.isa.operands import NkiInstruction
from nkisim.registers import VirtualRegister
