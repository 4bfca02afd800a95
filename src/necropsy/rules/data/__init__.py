"""Rules on a dataset: one file each."""
