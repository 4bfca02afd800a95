"""Reports of a fleet, as `necropsy run --json` writes them, without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def document(
    function: str = "score_rows",
    *,
    number: int = 0,
    at: str = "2026-11-20T10:00:00Z",
    host: str = "node01",
    version: str = "2.0",
    rule: str = "null-dereference",
    caller: str = "score",
) -> dict[str, Any]:
    """A death by SIGSEGV in ``function`` of a library with debug information, called from Python."""
    frames = [
        {
            "index": index,
            "function": f"rows::{name}(float const*)",
            "module": "/opt/app/librows.so",
            "module_offset": hex(0x1000 + 0x40 * index + sum(map(ord, name))),
            "address": hex(0x7F0000001000 + 0x40 * index),
            "source": "/src/rows.cc",
            "line": 10 + index,
            "kind": "native",
            "found_by": "cfi",
            "owner": "native-code",
        }
        for index, name in enumerate((function, f"apply_{function}"))
    ]
    python = [
        {
            "index": 0,
            "function": caller,
            "source": "/home/user/train.py",
            "line": 7,
            "owner": "script",
            "kind": "python",
        }
    ]
    culprit = {
        "function": f"rows::{function}(float const*)",
        "module": "librows.so",
        "source": "/src/rows.cc",
        "line": 10,
        "python": {"function": caller, "file": "/home/user/train.py", "line": 7},
        "package": "rows",
        "version": version,
    }
    return {
        "schema": 1,
        "kind": "run",
        "id": f"20261120T100000Z-{number:08x}",
        "tool": {"name": "necropsy", "version": "0.1.0"},
        "complete": True,
        "subject": {"kind": "process", "command": ["python", "train.py"]},
        "host": host,
        "processes": [{"pid": 100 + number, "role": "command", "exit": {"kind": "signaled", "signal": "SIGSEGV"}}],
        "reports": [
            {
                "pid": 100 + number,
                "signature": f"{rule}|rows::{function}|{sum(map(ord, function)):012x}",
                "crash": {
                    "pid": 100 + number,
                    "at": at,
                    "exit": {"kind": "signaled", "signal": "SIGSEGV"},
                    "fault": {"signal": "SIGSEGV", "code": "SEGV_MAPERR", "address": "0x0", "access": "read"},
                    "threads": [{"tid": 100 + number, "crashed": True, "frames": frames, "python": python}],
                    "libraries": {},
                },
                "verdict": {
                    "rule": rule,
                    "title": "A null pointer was used",
                    "summary": f"{function} used a null pointer",
                    "severity": "error",
                    "confidence": "certain",
                    "evidence": [{"claim": "the address is 0", "seen": "0x0"}],
                    "culprit": culprit,
                },
            }
        ],
    }


def write(folder: Path, name: str, function: str = "score_rows", **different: Any) -> Path:
    """Write such a report."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(document(function, **different), indent=1))
    return path


def fill(folder: Path, counts: dict[str, int], first: int = 0) -> None:
    """Reports of some bugs, on three hosts and ten days."""
    number = first
    for function, count in counts.items():
        for _ in range(count):
            at = f"2026-11-{10 + number % 10}T10:00:00Z"
            write(folder, f"{number:05d}.json", function, number=number, at=at, host=f"node{number % 3:02d}")
            number += 1


LOG = """\
Step 41 done
Fatal Python error: Segmentation fault

Current thread 0x00007f1c2a3b4740 (most recent call first):
  File "/home/user/train.py", line 7 in score
  File "/home/user/train.py", line 30 in <module>
Segmentation fault (core dumped)
"""
"""What faulthandler and a shell say."""
