"""The version of nkisim, which is that of the distribution it comes with."""

__version__ = "0.1.0"
