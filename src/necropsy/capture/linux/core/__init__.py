"""Core files: those that are read, and the small ones that are written."""
