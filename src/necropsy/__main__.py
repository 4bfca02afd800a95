"""``python -m necropsy``."""

from __future__ import annotations

import os
import sys


def _leave_working_directory() -> None:
    """``-m`` puts the working directory first on the path: a user's ``select.py`` would replace the standard one."""
    here = sys.path[0] if sys.path and not getattr(sys.flags, "safe_path", False) else None
    try:
        working = os.getcwd()  # noqa: PTH109 - no imports from that directory, pathlib's neither
    except OSError:  # it has been removed: there is nothing to import from it
        return
    if here is not None and here in {"", working} and not os.path.isdir(os.path.join(here, "necropsy")):  # noqa: PTH112, PTH118
        del sys.path[0]


if __name__ == "__main__":
    _leave_working_directory()

    from necropsy.cli import main

    sys.exit(main())
