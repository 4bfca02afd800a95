"""Stacks: their bounds, the way from each frame to its caller, and the names of functions."""
