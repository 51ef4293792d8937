"""The weight gradient: a sum over positions, and the gradient of the bias."""
