"""Kernels at work: the session, one or two cores, arguments in and results out."""
