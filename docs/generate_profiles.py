"""Puts the profiles of three examples into docs/explanation/profiled-examples.md: `make profiles`.

By hand, on Linux with g++ and TensorFlow. Each example is profiled as it is, or with a larger stack where it would die.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from demo.examples import FOLDER
from demo.profiled import STACKS, profile, shown
from demo.workshop import Workshop

PAGE = Path(__file__).parent / "explanation" / "profiled-examples.md"


def main() -> None:
    """Write the page."""
    page = PAGE.read_text(encoding="utf-8")
    workshop = Workshop(FOLDER, sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        for name in STACKS:
            text = shown(name, profile(workshop, name, Path(folder)))
            mark = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
            found = mark.search(page)
            if found is None:
                raise SystemExit(f"{PAGE.name} has no place for {name}")
            page = page[: found.end(1)] + text + page[found.start(2) :]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
