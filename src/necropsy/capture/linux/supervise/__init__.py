"""Follows the command: the tracer, its event loop, and what happens at a death."""
