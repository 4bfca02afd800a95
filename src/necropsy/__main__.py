"""``python -m necropsy``."""

from __future__ import annotations

import sys

from necropsy.cli import main

if __name__ == "__main__":
    sys.exit(main())
