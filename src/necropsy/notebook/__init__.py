"""Notebooks: cells that run in a process of their own, and kernels whose death is explained in the notebook."""
