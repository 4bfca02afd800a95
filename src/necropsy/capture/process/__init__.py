"""What is read of a stopped process on any system: memory, stacks, the interpreter's objects."""
