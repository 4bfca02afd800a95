"""Many reports become a list of bugs: files are read into rows, rows are grouped by their fingerprints and kept."""
