"""The tables of codes are what their primary sources say, as far as those lie on this machine."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "rebuild_tables.py"
DATA = ROOT / "src" / "necropsy" / "data"
RECORDED = ("glibc", "2.36")
"""The C library whose texts the tables were made from; another one may print more."""


def check(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), "--check", *words], capture_output=True, text=True, check=False)


@pytest.mark.skipif(platform.libc_ver() != RECORDED, reason="another C library may print more texts")
def test_tables_agree_with_the_sources_that_are_here() -> None:
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    # What is not here is said, with the command that gets it.
    for line in done.stdout.splitlines():
        assert not line.startswith("not here: ") or "download" in line


@pytest.mark.skipif(platform.libc_ver() != RECORDED, reason="another C library may print more texts")
def test_a_wrong_number_is_noticed(tmp_path: Path) -> None:
    header = tmp_path / "mingw-w64" / "include" / "ntstatus.h"
    header.parent.mkdir(parents=True)
    names = json.loads((DATA / "ntstatus.json").read_text(encoding="utf-8"))["names"]
    rows = [
        f"#define {name} ((NTSTATUS){code})"
        for code, some in names.items()
        for name in ([some] if isinstance(some, str) else some)
    ]
    header.write_text("\n".join(rows) + "\n")
    assert "ntstatus.json" not in check("--sources", str(tmp_path)).stdout
    header.write_text(
        "\n".join(rows).replace(
            "STATUS_STACK_OVERFLOW ((NTSTATUS)0xC00000FD", "STATUS_STACK_OVERFLOW ((NTSTATUS)0xC00000FE"
        )
    )
    done = check("--sources", str(tmp_path))
    assert done.returncode == 1
    assert "ntstatus.json: differs from its source" in done.stdout
