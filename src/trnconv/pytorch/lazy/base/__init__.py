"""Below lazy tensors: memory and who still reads it, deferred results, traits of operators."""
