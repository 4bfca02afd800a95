"""Results that several tests need: the first test to need one makes it, in whichever pytest worker, and the others wait."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def folder_of(base: Path, name: str) -> Path:
    """A folder for all workers; ``base``: the temporary folder of a worker, or of the only process."""
    folder = (base if base.name.startswith("pytest-") else base.parent) / name
    folder.mkdir(exist_ok=True)
    return folder


def once(folder: Path, name: str, make: Callable[[], object]) -> Any:
    """What ``make`` returns, as it comes back from JSON. If it raises, the next test tries again."""
    kept = folder / f"{name}.json"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(make()))
    return json.loads(kept.read_text())
