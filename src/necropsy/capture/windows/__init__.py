"""A death on Windows: seen live by a debug loop, or read from a minidump on any system."""
