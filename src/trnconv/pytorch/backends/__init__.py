"""Who computes what is asked of torch: nkisim, a device, or torch itself."""
