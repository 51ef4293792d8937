"""Views: shape, strides and place of a tensor, and every way to make another view of it."""
