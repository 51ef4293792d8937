"""Where a corpus lies: addresses, files that are written whole, documents and leases."""
