"""The Winograd algorithm: F(m, 3) along frames or rows, fewer products with fp16 transforms."""
