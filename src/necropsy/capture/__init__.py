"""Command, pid, file or text to Crash; each backend fills what it can and names its gaps."""
