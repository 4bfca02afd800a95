"""Profiles of the examples that survive: what each took of its stack, and where it would not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from demo.examples import FOLDER, catalogue
from demo.workshop import TIME_LIMIT_S, Workshop
from necropsy import serialize
from necropsy.model import Document, StackUse

STACKS = {"deep-recursion": 8192, "stack-array": 65536, "tree-deep": 8192}
"""Example -> the soft limit of its stack in KiB."""
OVERWRITTEN = {"tree-deep"}
"""Examples whose recursion leaves no return addresses behind: each level calls another function on its way back."""
MIB = 1 << 20


def main_thread(document: Document) -> StackUse:
    """The stack of the command's main thread."""
    own = document.processes[0]
    return next(one for one in own.stacks or () if one.tid == own.pid)


def statement(document: Document) -> str:
    """``survived here, used 3.1 of 8 MiB, would not fit into the 2,000,000 bytes of Windows' python.exe``."""
    stack = main_thread(document)
    peak, whole = stack.peak or 0, stack.size or 0
    said = f"survived here, used {peak / MIB:.1f} of {whole / MIB:.0f} MiB ({peak:,} bytes)"
    too_small = [one for one in stack.would_not_fit or () if one.where.startswith("Windows")]
    return f"{said}, would not fit into the {too_small[0].bytes:,} bytes of Windows' python.exe" if too_small else said


def profile(workshop: Workshop, name: str, folder: Path) -> Document:
    """The example under `necropsy profile`; raises SystemExit if it does not end well."""
    known = catalogue(FOLDER)
    example = next(one for one in known.example if one.name == name)
    written = folder / f"{name}.json"
    necropsy = [sys.executable, "-m", "necropsy", "profile", "--quiet", "--json", str(written), "--"]
    command = ["sh", "-c", f'ulimit -S -s {STACKS[name]}; exec "$@"', "sh", *necropsy]
    done = subprocess.run(
        [*command, *workshop.command(example, known.build)],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        env={**os.environ, "NECROPSY_OUTPUT": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if done.returncode:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-500:]}")
    return serialize.loads(written.read_bytes())


def shown(name: str, document: Document) -> str:
    """What the page of profiled examples has of one."""
    if name in OVERWRITTEN:
        return f"{name}: **{statement(document)}.**\n"
    stack = main_thread(document)
    rows = [row for row in stack.functions or () if row.bytes >= (stack.peak or 0) / 100][:3]
    lines = [
        f"    {row.bytes:>12,} {row.bytes / (stack.peak or 1):>6.1%}  {row.times:>7,} x {row.frame_bytes:,} bytes"
        f"  {row.function or '(no name)'}{', partial' if row.partial else ''}"
        for row in rows
    ]
    table = "\n".join(lines)
    return f"{name}: **{statement(document)}.**\n\n```text\n{table}\n```\n"
