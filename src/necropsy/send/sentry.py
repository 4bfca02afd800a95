"""Crashes as events of Sentry: an envelope for each, with native and Python frames and the libraries by build ID.

https://develop.sentry.dev/sdk/data-model/envelopes/ and https://develop.sentry.dev/sdk/data-model/event-payloads/
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from necropsy.errors import OptionError
from necropsy.model import Frame, Module, Thread
from necropsy.reports import wording
from necropsy.reports.incidents import Call
from necropsy.reports.terminal import file_name
from necropsy.send import receivers
from necropsy.send.items import Item
from necropsy.send.receivers import Receiver

_FRAMES, _LEAN_FRAMES = 250, 20
"""Frames of an event: Sentry keeps about 250, the outermost and the innermost."""


_TRUST = {"cfi": "cfi", "frame-pointer": "fp", "scan": "scan", "registers": "context"}
"""How a frame was found, in Sentry's words."""


def receiver(dsn: str, version: str) -> Receiver:
    """The project of a DSN, ``https://KEY@HOST/PROJECT``. Raises ``OptionError``, which does not show the key."""
    parts = receivers.parsed(dsn, "--sentry")
    path, _, project = parts.path.rstrip("/").rpartition("/")
    if not parts.username or not project:
        raise OptionError("--sentry takes a DSN such as https://KEY@HOST/PROJECT (Settings > Client Keys in Sentry)")
    parts = parts._replace(path=f"{path}/api/{project}/envelope/", query="", fragment="")
    client = f"necropsy/{version}"
    key = parts.username
    headers = {
        "Content-Type": "application/x-sentry-envelope",
        "X-Sentry-Auth": f"Sentry sentry_version=7, sentry_client={client}, sentry_key={key}",
    }

    def write(items: Sequence[Item], *, lean: bool) -> bytes:
        return b"".join(envelope(one, version, lean=lean) for one in items)

    name = f"sentry {receivers.shown(parts, path=False)} project {project}"
    return Receiver("sentry", name, receivers.without_user(parts), write, 1, headers)


def envelope(one: Item, version: str, *, lean: bool = False) -> bytes:
    """Three lines: the envelope's header, the item's header, the event."""
    body = receivers.as_json(event(one, version, lean=lean))
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    head = receivers.as_json({"event_id": one.event_id, "sent_at": now})
    kind = receivers.as_json({"type": "event", "length": len(body), "content_type": "application/json"})
    return b"\n".join([head, kind, body, b""])


def event(one: Item, version: str, *, lean: bool = False) -> dict[str, Any]:
    """The event's payload."""
    incident, group = one.incident, one.group
    crash = one.report.crash if one.report is not None else None
    thread = wording.shown_thread(crash) if crash is not None else None
    modules = {file_name(module.path): module for module in (crash.modules or () if crash is not None else ())}
    most = _LEAN_FRAMES if lean else _FRAMES
    frames = _frames(thread, modules) if thread is not None else []
    frames = frames or [_named(call) for call in (*incident.stack, *incident.python)]
    end = wording.end_in_a_word(crash) if crash is not None else (group.end if group is not None else None)
    used = {frame.get("package") for frame in frames[:most]}
    images = [image for name, module in modules.items() if name in used and (image := _image(module)) is not None]
    tags: dict[str, Any] = {"rule": incident.rule, "confidence": incident.confidence, "end": end}
    if group is not None:
        tags |= {"group": group.id, "group.status": group.status}
    context = {
        "document": one.document_id,
        "details": list(incident.details),
        **({"count": group.count, "first": group.first, "last": group.last, "hosts": group.hosts} if group else {}),
    }
    exception: dict[str, Any] = {
        "type": end or incident.rule,
        "value": incident.title,
        "mechanism": {"type": "necropsy", "handled": False, "synthetic": True},
    }
    if frames:
        exception["stacktrace"] = {"frames": list(reversed(frames[:most]))}
    if thread is not None and thread.tid is not None:
        exception["thread_id"] = thread.tid
    return {
        "event_id": one.event_id,
        "timestamp": one.seconds if one.seconds is not None else time.time(),
        "platform": "native",
        "level": "fatal",
        "logger": "necropsy",
        "sdk": {"name": "necropsy", "version": version},
        "fingerprint": [incident.key],
        "exception": {"values": [exception]},
        "tags": {name: str(value) for name, value in tags.items() if value is not None},
        "contexts": {"necropsy": {"type": "default", **context}},
        **({"server_name": one.hosts[0]} if one.hosts else {}),
        **({"modules": one.versions} if one.versions and not lean else {}),
        **({"debug_meta": {"images": images}} if images and not lean else {}),
    }


def _frames(thread: Thread, modules: dict[str, Module]) -> list[dict[str, Any]]:
    """Innermost first; a Python frame is where the interpreter runs it, or else outside all native ones."""
    python = list(thread.python or ())
    by_index: dict[int, list[Frame]] = {}
    for frame in python:
        if frame.evaluated_by is not None:
            by_index.setdefault(frame.evaluated_by, []).append(frame)
    found: list[dict[str, Any]] = []
    for frame in thread.frames or ():
        found += [_python(each) for each in by_index.pop(frame.index, ())]
        found.append(_native(frame, modules))
    return found + [_python(each) for each in python if each.evaluated_by is None or each.evaluated_by in by_index]


def _native(frame: Frame, modules: dict[str, Module]) -> dict[str, Any]:
    name = file_name(frame.module) if frame.module else None
    module = modules.get(name or "")
    values = {
        "platform": "native",
        "function": frame.function,
        "package": name,
        "instruction_addr": str(frame.address) if frame.address is not None else None,
        "image_addr": str(module.low) if module is not None else None,
        "filename": file_name(frame.source) if frame.source else None,
        "abs_path": frame.source,
        "lineno": frame.line,
        "in_app": frame.owner in {"native-code", "script"} if frame.owner is not None else None,
        "trust": _TRUST.get(frame.found_by or ""),
    }
    return {key: value for key, value in values.items() if value is not None}


def _python(frame: Frame) -> dict[str, Any]:
    values = {
        "platform": "python",
        "function": frame.function,
        "filename": file_name(frame.source) if frame.source else None,
        "abs_path": frame.source,
        "lineno": frame.line,
        "context_line": frame.code,
        "in_app": frame.owner == "script" if frame.owner is not None else None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _named(call: Call) -> dict[str, Any]:
    python = call.module is None and call.place is not None
    values = {
        "platform": "python" if python else "native",
        "function": call.function,
        "package": call.module,
        "filename": file_name(call.place.path) if call.place is not None else None,
        "lineno": call.place.line if call.place is not None else None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _image(module: Module) -> dict[str, Any] | None:
    """A debug image, by which Sentry finds symbols; None where it has no build ID."""
    build_id = module.build_id
    if build_id is None or len(build_id) < 8:
        return None
    try:
        data = bytes.fromhex(build_id)
    except ValueError:
        return None
    # As Breakpad has it: the first 16 bytes as a GUID, whose first three numbers are little-endian.
    guid = UUID(bytes_le=(data + bytes(16))[:16])
    return {
        "type": "pe" if module.path.lower().endswith((".dll", ".exe", ".pyd")) else "elf",
        "code_id": build_id,
        "debug_id": str(guid),
        "code_file": module.path,
        "image_addr": str(module.low),
        "image_size": max(int(module.high) - int(module.low), 0),
    }
