"""``python examples/demo``."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # a folder that is run is itself the first place of the path

    from demo.command import main

    sys.exit(main())
