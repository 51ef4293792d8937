"""Kernels that follow published instruction streams, one file per family; written in NKI."""
