"""End without a native crash: endings.py healthy|exception|recursion|exit|quiet-exit|handled."""

import os
import sys


def work(how: str) -> None:
    if how == "exception":
        raise ValueError("no such dataset")  # the line
    if how == "recursion":
        work(how)
    if how == "exit":
        sys.exit(1)
    if how == "quiet-exit":
        os._exit(3)
    if how == "handled":
        try:
            int("never shown")
        except ValueError:
            print("fine", file=sys.stderr)


work(sys.argv[1])
