"""Convolutions for AWS Trainium, frozen for named problems: plain NKI and torch."""

from .frozen import conv3d, entry_of, problems, recipe_of
from .layers import FrozenConv3d

__all__ = ["FrozenConv3d", "conv3d", "entry_of", "problems", "recipe_of"]
