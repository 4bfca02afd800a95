"""What made the protobuf code of a distribution: newer generators write their version into each file."""

from __future__ import annotations

import re

from necropsy.doctor.distributions import Installed, rows

_VERSION = re.compile(rb"^# Protobuf Python Version: (\d+\.\d+\.\d+)", re.MULTILINE)
BEFORE_3_20 = "3.19"
"""Code without a version that builds its descriptors by itself: generated before 3.20, and refused from 4 on."""
_BUILDS_DESCRIPTORS = b"_descriptor.FieldDescriptor("
_HEAD = 4096
_MOST = 2000


def generated_by(one: Installed) -> str | None:
    """The newest version that its generated code names; ``3.19`` for code of before 3.20; None where there is none."""
    newest: tuple[int, ...] = ()
    old = False
    paths = [row.path for row in rows(one) or () if row.path.endswith("_pb2.py")][:_MOST]
    for path in paths:
        try:
            with open(f"{one.noun.location}/{path}", "rb", buffering=0) as file:
                head = file.read(_HEAD)
        except OSError:
            continue
        match = _VERSION.search(head)
        if match is not None:
            newest = max(newest, tuple(int(part) for part in match[1].split(b".")))
        elif not old:
            old = _BUILDS_DESCRIPTORS in head
    if newest:
        return ".".join(map(str, newest))
    return BEFORE_3_20 if old else None
