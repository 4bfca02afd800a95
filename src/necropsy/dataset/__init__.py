"""Walks over a dataset and notes what is wrong with its elements.

These modules run in the interpreter that the dataset belongs to, Python 3.8 or newer, where necropsy may not be
installed: they import the standard library, NumPy and each other, and what they return is plain data.
"""
