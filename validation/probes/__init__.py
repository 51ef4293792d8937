"""Probes: small kernels that ask a device what the timing model assumes of fast convolutions."""
