"""Is a kernel right? A layer against its definition in float64; models: `pytorch.three_ways`."""
