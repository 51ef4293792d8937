"""Convolutions for AWS Trainium, exported for named problems: plain NKI and torch."""

from .conv import conv3d, entry_of, problems, recipe_of
from .layers import ExportedConv3d

__all__ = ["ExportedConv3d", "conv3d", "entry_of", "problems", "recipe_of"]
