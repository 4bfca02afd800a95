"""``necropsy fuzz``: calls an op or a native function with many inputs, and finds those that kill the process."""
