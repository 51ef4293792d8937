"""The filter gradient: a sum over positions, and the gradient of the bias."""
