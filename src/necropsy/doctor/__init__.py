"""What is to be set up on a machine so that a death can be examined, and how."""
