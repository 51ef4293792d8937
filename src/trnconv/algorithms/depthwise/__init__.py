"""The depthwise algorithm: one filter a channel, on the Vector, Scalar and GpSimd engines."""
