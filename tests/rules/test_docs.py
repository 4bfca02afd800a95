"""docs/rules is what the rules' own files say."""

from __future__ import annotations

import runpy
from pathlib import Path

GENERATOR = Path(__file__).parent.parent.parent / "docs" / "generate_rules.py"


def test_pages_are_fresh() -> None:
    assert runpy.run_path(str(GENERATOR))["stale"]() == [], "run `make docs`"
