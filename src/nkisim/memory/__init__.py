"""What lies behind views: data, capacity, liveness, PSUM history, shared addresses."""
