"""Inputs: lists of videos, and frames of each at the size and rate of its bucket."""
