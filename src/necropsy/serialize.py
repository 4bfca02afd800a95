"""Model to JSON and back: the only place that knows how the document looks on disk."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from necropsy.errors import UnreadableReportError
from necropsy.model import Address, Document


def to_json(value: object) -> object:
    """Encode types unknown to msgspec (``enc_hook``); raises ``NotImplementedError`` for types that documents lack."""
    if isinstance(value, Address):
        return hex(value)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


def from_json(wanted: type, value: Any) -> Any:
    """Decode them again (``dec_hook``); raises ``NotImplementedError`` for types that documents lack."""
    if wanted is Address:
        return Address(value, 16)
    raise NotImplementedError(f"no {wanted.__name__} from JSON")


def _schema_of(kind: type) -> dict[str, object]:
    if kind is Address:
        return {"type": "string", "pattern": "^0x[0-9a-f]+$", "description": "an address"}
    raise NotImplementedError(kind.__name__)


def _printable(value: Any) -> Any:
    """Write every lone surrogate as a backslash escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(one) for one in value]
    return value


def dumps(document: Document) -> bytes:
    """The document as indented UTF-8 JSON; raises ``NotImplementedError`` if a value has no JSON form (a defect)."""
    try:
        data = msgspec.json.encode(document, enc_hook=to_json)
    except UnicodeEncodeError:
        # argv, paths and logs are bytes; where they are no UTF-8 Python holds lone surrogates, which JSON cannot.
        data = msgspec.json.encode(_printable(msgspec.to_builtins(document, enc_hook=to_json)))
    return _harmless(msgspec.json.format(data, indent=1)) + b"\n"


# What a terminal obeys or shows in another order than it stands: DEL, C1 controls, format characters such as those of
# bidirectional text, line and paragraph ends, tags. And what CI services take for a command in the middle of a line.
_UNSAFE = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    r"|#(?=#(?:\[|vso\[|teamcity\[))"
)


def _harmless(data: bytes) -> bytes:
    """Escape such characters, which JSON has only inside strings."""
    if data.isascii() and b"\x7f" not in data and b"##" not in data:
        return data
    return _UNSAFE.sub(_escaped, data.decode()).encode()


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def loads(data: bytes) -> Document:
    """Parse a document; raises ``UnreadableReportError`` for invalid JSON, another schema, or a wrong type."""
    try:
        return msgspec.json.decode(data, type=Document, dec_hook=from_json)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableReportError(f"not a necropsy report: {error}") from None


def write(document: Document, path: Path) -> None:
    """Write the document atomically, readable by its owner only; raises ``OSError`` if the folder is not writable.

    A target that is not a regular file (``/dev/stdout``, a pipe) is written in place.
    """
    data = dumps(document)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document, generated from the model."""
    import inspect

    schema = msgspec.json.schema(Document, schema_hook=_schema_of)
    for definition in schema["$defs"].values():
        if "description" in definition:
            # A docstring, which msgspec leaves indented before version 0.23.
            definition["description"] = inspect.cleandoc(definition["description"])
    return schema
