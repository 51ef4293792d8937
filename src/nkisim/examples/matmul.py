"""A blocked matrix product: panels of b stay in SBUF, strips of a_t stream past them.

Everything is held twice, so that one is filled while the other is used: panels and strips in SBUF,
and in PSUM the sums of two row tiles times a panel, which take half of its banks, each a tensor of
its own (trn1 adds up one accumulation group a tensor). Vector and Scalar engines share the way out
of PSUM.
"""

import nki.isa as nisa
import nki.language as nl

PANEL_BANKS = 2  # columns of a panel, in banks of PSUM
STRIP_TILES = 4  # row tiles of a strip
GROUP_TILES = 2  # row tiles that are summed at a time


def matmul(a_t: nl.NkiTensor, b: nl.NkiTensor) -> nl.NkiTensor:
    """transpose(a_t) @ b for a_t [K, M], b [K, N]: whole tiles of K, strips of M, panels of N."""
    side, bank = nl.tile_size.pmax, nl.tile_size.psum_fmax
    deep, high, wide = a_t.shape[0] // side, STRIP_TILES * side, PANEL_BANKS * bank
    out = nl.ndarray((a_t.shape[1], b.shape[1]), dtype=a_t.dtype, buffer=nl.shared_hbm, name="out")
    panels = two("panel", (side, deep, wide), b.dtype, nl.sbuf)
    strips = two("strip", (side, deep, high), a_t.dtype, nl.sbuf)
    sums = [banks("sums_0", side, bank), banks("sums_1", side, bank)]
    strips_used, groups_used = 0, 0
    for column in range(b.shape[1] // wide):
        panel = panels[column % 2]
        for row in range(a_t.shape[1] // high):
            strip = strips[strips_used % 2]
            strips_used += 1
            for k in range(deep):
                depth = nl.ds(k * side, side)
                if row == 0:
                    nisa.dma_copy(panel[:, k, :], b[depth, nl.ds(column * wide, wide)])
                nisa.dma_copy(strip[:, k, :], a_t[depth, nl.ds(row * high, high)])
            for first in range(0, STRIP_TILES, GROUP_TILES):
                group = sums[groups_used % 2]
                groups_used += 1
                multiply(group, strip[:, :, first * side : (first + GROUP_TILES) * side], panel)
                top = row * high + first * side
                store(out[nl.ds(top, GROUP_TILES * side), nl.ds(column * wide, wide)], group)
    return out


def two(
    name: str, shape: tuple[int, ...], dtype: str, buffer: nl.MemoryRegion
) -> list[nl.NkiTensor]:
    """Two equal tensors, to be used in turn."""
    return [
        nl.ndarray(shape, dtype=dtype, buffer=buffer, name=f"{name}_0"),
        nl.ndarray(shape, dtype=dtype, buffer=buffer, name=f"{name}_1"),
    ]


def banks(name: str, side: int, bank: int) -> list[nl.NkiTensor]:
    """PSUM for a group of row tiles: a tensor for each bank of a panel, tile after tile."""
    tensors = [None] * (GROUP_TILES * PANEL_BANKS)
    for number in range(len(tensors)):
        tensors[number] = nl.ndarray((side, bank), nl.float32, nl.psum, name=f"{name}_{number}")
    return tensors


def multiply(group: list[nl.NkiTensor], strip: nl.NkiTensor, panel: nl.NkiTensor) -> None:
    """group[tile, bank] = transpose(strip[..., tile]) @ panel[..., bank], summed over k."""
    side, bank = nl.tile_size.pmax, nl.tile_size.psum_fmax
    for k in range(strip.shape[1]):
        for tile in range(GROUP_TILES):
            weights = strip[:, k, nl.ds(tile * side, side)]
            for column in range(PANEL_BANKS):
                moving = panel[:, k, nl.ds(column * bank, bank)]
                sums = group[tile * PANEL_BANKS + column]
                nisa.nc_matmul(sums, weights, moving, accumulate=k > 0)


def store(out: nl.NkiTensor, group: list[nl.NkiTensor]) -> None:
    """Bring a group of sums to HBM, a row tile at a time."""
    side, bank = nl.tile_size.pmax, nl.tile_size.psum_fmax
    for tile in range(GROUP_TILES):
        block = nl.ndarray((side, PANEL_BANKS * bank), dtype=out.dtype)
        for column in range(PANEL_BANKS):
            place, sums = block[:, nl.ds(column * bank, bank)], group[tile * PANEL_BANKS + column]
            if column % 2 == 0:
                nisa.tensor_copy(place, sums, engine=nisa.vector_engine)
            else:
                nisa.activation(place, op=nl.copy, data=sums)
        nisa.dma_copy(out[nl.ds(tile * side, side), :], block)
