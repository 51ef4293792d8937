"""Gradient of a group norm and its activation."""
