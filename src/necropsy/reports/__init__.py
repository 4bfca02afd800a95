"""Report to str: one function per format."""
