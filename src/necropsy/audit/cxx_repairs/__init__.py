"""Repairs of C++ sources: what to change about a defect, and how the changes reach the files."""
