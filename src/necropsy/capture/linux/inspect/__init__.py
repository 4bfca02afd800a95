"""What is read of a stopped process, besides its stacks."""
