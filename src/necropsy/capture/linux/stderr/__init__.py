"""The end of what the command writes to stderr, and messages that it left elsewhere."""
