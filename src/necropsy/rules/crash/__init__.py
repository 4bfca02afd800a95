"""Rules on a crash: one file each."""
