"""A convolution that has not run: its filters and operands, and what it is modelled to take."""
