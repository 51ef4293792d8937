"""The minimal form: F(m, 3) along frames or rows, fewer products with fp16 transforms."""
