"""Where each table of ``src/necropsy/data`` comes from, and how its primary source is read."""
