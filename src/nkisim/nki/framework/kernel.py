"""The `nki.framework.kernel` namespace. NKI calls it internal; integrations import it."""

from nkisim.running.kernel import Kernel

__all__ = ["Kernel"]
