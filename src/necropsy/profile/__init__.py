"""What a healthy run took of its stacks and of its memory."""
