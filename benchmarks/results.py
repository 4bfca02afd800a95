"""Where measurements are written: a section of RESULTS.md for each program, and blocks of other pages."""

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


def put_between(path: Path, name: str, body: str) -> None:
    """Replace what stands between the marks of ``name`` in a page; SystemExit where it has none."""
    text = path.read_text()
    marked = re.compile(rf"(<!-- {name}: begin[^\n]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not marked.search(text):
        raise SystemExit(f"{path} has no block {name}")
    path.write_text(marked.sub(lambda match: f"{match[1]}{body}\n{match[2]}", text))
