"""Formats of what ``necropsy check`` found."""
