"""Modulation by scales and shifts of a lower resolution, which are never upsampled in memory."""
