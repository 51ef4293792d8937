"""What convolutions take over: movement before them, sums and activations after them."""
