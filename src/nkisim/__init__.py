"""nkisim: a NeuronCore in NumPy."""
