"""Estimates of the memory of a training step, and of the time and disk space of runs."""
