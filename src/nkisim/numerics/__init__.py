"""Values: NKI dtypes, their rounding, and the operators on them."""
