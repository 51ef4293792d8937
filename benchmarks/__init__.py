"""What the convolutions of trnconv are compared with, and the comparison."""
