"""LazyTensor, the cell of memory behind it, its strides, and the context it lives in."""
