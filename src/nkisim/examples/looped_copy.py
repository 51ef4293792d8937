"""A copy through SBUF as a hardware loop: however many rows, the program has the same length."""

import nki.isa as nisa
import nki.language as nl

TILES = 4  # copied in one iteration


def looped_copy(x: nl.NkiTensor) -> nl.NkiTensor:
    """A copy of x [rows, columns]; rows in whole iterations of TILES tiles."""
    side, columns = nl.tile_size.pmax, x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    trips = x.shape[0] // (TILES * side)
    source = x.reshape((trips, TILES, side, columns))
    target = out.reshape((trips, TILES, side, columns))

    def copy_block(trip: nisa.VirtualRegister) -> None:
        for number in range(TILES):
            tile = nl.ndarray((side, columns), dtype=x.dtype)
            nisa.dma_copy(tile, source[:, number, :, :].select(0, trip))
            nisa.dma_copy(target[:, number, :, :].select(0, trip), tile)

    nl.fori_loop(0, trips, copy_block)
    return out
