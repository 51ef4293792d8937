"""NKI kernels: they obey a recipe and choose nothing."""
