"""The last death of a notebook, next to its connection file, where the kernel that is started again finds it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

_SUFFIX = ".necropsy-death"


def path(connection_file: Path) -> Path:
    """Where the death is kept."""
    return connection_file.with_suffix(_SUFFIX)


def meeting_place(connection_file: Path) -> str:
    """The abstract socket at which the companion of a kernel listens."""
    name = hashlib.sha256(os.fsencode(connection_file)).hexdigest()[:32]
    return f"\0necropsy-notebook-{os.getuid()}-{name}"


def keep(connection_file: Path, text: str, *, shown: bool) -> None:
    """Write it, for the user only. ``shown``: the notebook shows it already.

    Raises OSError where it cannot be written.
    """
    target = path(connection_file)
    handle, temporary = tempfile.mkstemp(prefix=target.stem, suffix=f"{_SUFFIX}.part", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            json.dump({"text": text, "shown": shown}, file)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(connection_file: Path) -> str | None:
    """The text; None where nothing has died."""
    try:
        record = json.loads(path(connection_file).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    text = record.get("text") if isinstance(record, dict) else None
    return text if isinstance(text, str) else None


def sweep(connection_file: Path) -> None:
    """Remove those next to this connection file whose notebooks are closed: their connection files are gone."""
    with contextlib.suppress(OSError):
        for one in list(connection_file.parent.glob(f"*{_SUFFIX}")):
            if not one.with_suffix(".json").exists():
                one.unlink(missing_ok=True)
