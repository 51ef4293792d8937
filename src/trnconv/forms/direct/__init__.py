"""The direct form: every product of the definition, summed by the Tensor engine."""
