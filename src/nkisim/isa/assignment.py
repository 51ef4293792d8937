"""`tile[...] = value`, as the instruction that it stands for."""

from __future__ import annotations

from nkisim.errors import refuse
from nkisim.isa.dma import dma_copy
from nkisim.isa.move import tensor_copy
from nkisim.kinds import value_in_words
from nkisim.memory.layout import HBM
from nkisim.tensors.tensor import NkiTensor, define_assignment


def assign(dst: NkiTensor, src: NkiTensor) -> None:
    """`tile[...] = value`: a copy by the engine that reaches both sides."""
    if not isinstance(src, NkiTensor):
        refuse(
            "tensor[...] = value",
            f"the value is {value_in_words(src)}",
            "assigning copies one tensor into another",
            "fill it with nisa.memset(tensor, number), or compute into it with an instruction",
        )
    if dst.buffer in HBM or src.buffer in HBM:
        dma_copy(dst, src)
    else:
        tensor_copy(dst, src)


define_assignment(assign)
