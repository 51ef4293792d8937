"""Convolution for AWS Trainium.

The first layers are here: the problem in integers (`geometry`), its definition in NumPy
(`reference`) and the convolutions of 30 models (`catalogue`). Planner, kernels, runtime and the
PyTorch front end come with later releases; the machine they are developed on is `nkisim`.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
