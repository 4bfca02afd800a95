"""RESULTS.md, a section for each program that measures something."""

from __future__ import annotations

import re
from pathlib import Path


def put(path: Path, section: str) -> None:
    """Put a section, which begins with a heading of the first level, in the place of the one with that heading.

    Where there is none yet, it goes to the end; the others stay as they are.
    """
    heading = section.partition("\n")[0]
    before = path.read_text() if path.exists() else ""
    own = re.compile(rf"^{re.escape(heading)}\n.*?(?=^# |\Z)", re.MULTILINE | re.DOTALL)
    if own.search(before):
        after = own.sub(lambda _: f"{section.strip()}\n\n", before)
    else:
        after = f"{before.strip()}\n\n{section}"
    path.write_text(f"{after.strip()}\n")
