"""Deciding how a convolution runs, before anything runs."""
