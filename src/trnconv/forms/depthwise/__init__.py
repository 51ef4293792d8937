"""The depthwise form: one filter a channel, on the Vector, Scalar and GpSimd engines."""
