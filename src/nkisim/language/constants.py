"""Dtypes, which are strings, and memory regions."""

from __future__ import annotations

from nkisim.memory.layout import HBM, ON_CHIP, MemoryRegion
from nkisim.numerics.dtypes import DType

bool_: DType = "bool"
int8: DType = "int8"
int16: DType = "int16"
int32: DType = "int32"
int64: DType = "int64"
uint8: DType = "uint8"
uint16: DType = "uint16"
uint32: DType = "uint32"
float16: DType = "float16"
float32: DType = "float32"
bfloat16: DType = "bfloat16"
tfloat32: DType = "tfloat32"
float8_e4m3: DType = "float8_e4m3"
float8_e4m3fn: DType = "float8_e4m3fn"
float8_e5m2: DType = "float8_e5m2"
float8_e8m0fnu: DType = "float8_e8m0fnu"
float8_e5m2_x4: DType = "float8_e5m2_x4"
float8_e4m3fn_x4: DType = "float8_e4m3fn_x4"
float4_e2m1fn_x4: DType = "float4_e2m1fn_x4"

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = private_hbm


def is_hbm(buffer: MemoryRegion) -> bool:
    """Whether a region is in device memory, private or shared."""
    return buffer in HBM


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Whether a region is SBUF or PSUM."""
    return buffer in ON_CHIP


def is_psum(buffer: MemoryRegion) -> bool:
    """Whether a region is PSUM."""
    return buffer is MemoryRegion.psum


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Whether a region is SBUF."""
    return buffer is MemoryRegion.sbuf
