"""Is a kernel right? A layer against float64; models: `pytorch.compare_models`."""
