"""Bytes to values: no OS calls, no opinions."""
