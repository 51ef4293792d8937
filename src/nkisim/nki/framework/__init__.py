"""The `nki.framework` namespace: where integrations find the class of kernels."""

from nkisim.nki.framework import kernel

__all__ = ["kernel"]
