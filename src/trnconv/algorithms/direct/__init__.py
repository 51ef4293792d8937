"""The direct algorithm: every product of the definition, summed by the Tensor engine."""
