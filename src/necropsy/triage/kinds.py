"""What a file is, by its first bytes: names tell nothing."""

from __future__ import annotations

import re
from typing import Literal

FileKind = Literal["document", "zip", "core", "minidump", "junit", "text", "packed", "other"]
"""``document``: our JSON; ``zip``: a capsule or an archive of logs or dumps; ``packed``: compressed, so that it has to
be unpacked to know; ``other``: a file that is known to hold no report (a program, a picture)."""
HEAD = 4096
"""Bytes that are enough to tell."""

_OWN = re.compile(rb"\s*\{.{0,200}?\"schema\"\s*:", re.DOTALL)
_CAPSULE = re.compile(rb"PK\x03\x04|PK\x05\x06")
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
_ELF, _CORE, _MINIDUMP = b"\x7fELF", b"\x04\x00", b"MDMP"
_OTHER = (b"MZ", b"!<arch>\n", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF", b"SQLite format 3\x00", b"\x93NUMPY")
_OTHER_AT = {8: b"WEBP", 257: b"ustar"}
_HDF5 = b"\x89HDF\r\n\x1a\n"
_JUNIT = re.compile(rb"<testsuites?[\s>/]")
_XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<")
_APPORT = b"ProblemType:"
_BOMS = (b"\xff\xfe", b"\xfe\xff")


def kind_of(head: bytes) -> FileKind | None:
    """The kind of the file that begins with ``head`` (``HEAD`` bytes, or all of a smaller one).

    None: it is binary, and of no kind that is known.
    """
    if head.startswith(_ELF):
        return "core" if head[16:18] == _CORE else "other"
    if head.startswith(_MINIDUMP):
        return "minidump"
    if _CAPSULE.match(head):
        return "zip"
    if head.startswith(_PACKED):
        return "packed"
    if head.startswith((*_OTHER, _HDF5)) or any(head[at:].startswith(magic) for at, magic in _OTHER_AT.items()):
        return "other"
    if _OWN.match(head):
        return "document"
    if _XML.match(head) and _JUNIT.search(head):
        return "junit"
    if head.startswith(_APPORT) and b"CoreDump: base64" in head:
        return "core"
    return "text" if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    """Also UTF-16, and a log that begins with a hole because it was cut while a program wrote to it."""
    if head.startswith(_BOMS):
        return True
    filled = head.strip(b"\0")
    if not filled:
        return True
    zeros = filled.count(b"\0")
    if zeros and max(head[::2].count(b"\0"), head[1::2].count(b"\0")) < len(filled) // 4:
        return False
    controls = sum(filled.count(one) for one in _CONTROLS)
    return controls <= len(filled) // 20


_CONTROLS = tuple(bytes((code,)) for code in (*range(1, 7), *range(14, 27), *range(28, 32), 127))
"""Not in a log: all but BEL, BS, TAB, LF, VT, FF, CR and ESC."""
