"""repr of a list that is nested 200,000 times, with Python's own guard moved out of the way."""

import sys
from typing import Any

sys.setrecursionlimit(1_000_000)
nested: list[Any] = []
for _ in range(200_000):
    nested = [nested]


def show() -> None:
    print(len(repr(nested)))  # the line


show()
