"""Terms: what the outputs of an upsampled axis are sums of, three for two outputs.

Along an axis that is read with every position x_i twice, a filter of three taps meets two positions
for each output. With d_i = x_i - x_(i-1),

    y_2i     = w0 x_(i-1) + (w1 + w2) x_i      = (w0 + w1 + w2) x_i - w0 d_i
    y_(2i+1) = (w0 + w1) x_i + w2 x_(i+1)      = (w0 + w1 + w2) x_i + w2 d_(i+1)

so that both share a product: three for two outputs instead of four. Along rows and columns together
there are nine for four outputs instead of sixteen. Zeros and repeated values around the input are
the same zeros and values around what is read upsampled.
"""

from __future__ import annotations

from itertools import product

TIMES = 2  # each position is read
TAPS = 3
SUM, FIRST, LAST = 0, 1, 2  # terms of an axis: of x, of d for the even output, of d for the odd one
FILTERS = ((1, 1, 1), (-1, 0, 0), (0, 0, 1))  # how each term sums up the taps
INPUTS = ((0, 1, 0), (-1, 1, 0), (0, -1, 1))  # what it is of x_(i-1), x_i, x_(i+1)
OUTPUTS = ((SUM, FIRST), (SUM, LAST))  # the terms of each output
PRODUCTS = tuple(product((SUM, FIRST, LAST), repeat=2))  # terms of rows and of columns


def plane_sizes(rows: int, columns: int) -> tuple[tuple[int, int], ...]:
    """Rows and columns of the planes of a block: x, differences across, down, and of both.

    Those across are made of the rows around, too: those of both are made of them.
    """
    return (
        (rows, columns),
        (rows + 2, columns + 1),
        (rows + 1, columns),
        (rows + 1, columns + 1),
    )
