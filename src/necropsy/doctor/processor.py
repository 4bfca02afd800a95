"""The processor, as the kernel describes it."""

from __future__ import annotations

import os

from necropsy.model import Processor

_LARGEST = 1 << 20
"""Bytes of /proc/cpuinfo that are read; one processor's part has about 2 kB, and all of them say the same."""


def read(root: str = "/") -> Processor:
    """Name and features of the first processor.

    Raises:
        OSError: there is no /proc.

    """
    path = os.path.join(root, "proc/cpuinfo")
    with open(path, "rb") as file:
        text = file.read(_LARGEST).decode("utf-8", "replace")
    told: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            told.setdefault(key.strip().lower(), value.strip())
    flags = told.get("flags") or told.get("features") or ""
    return Processor(name=told.get("model name"), flags=tuple(flags.split()), told_by=path)
