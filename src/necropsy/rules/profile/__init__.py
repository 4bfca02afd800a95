"""Rules on what a process took of its stacks and its memory: `necropsy profile`."""
