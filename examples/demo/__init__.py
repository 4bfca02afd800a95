"""The examples of this folder run under necropsy, and what it finds held against what is true of them.

``python examples/demo --help``. The truth is in ``examples/catalogue.toml``, which was written from the examples'
mechanism before the tool was asked.
"""
