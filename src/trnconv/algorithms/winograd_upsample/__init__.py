"""Convolutions of an input that is read upsampled by two, by sums and differences of neighbours."""
