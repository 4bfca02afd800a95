"""Crashes as plain JSON for any service: one object with a list of items."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote

from necropsy.reports import incidents
from necropsy.send import receivers
from necropsy.send.items import Item
from necropsy.send.receivers import Receiver

_LEAN_LINES = 5


def receiver(url: str, version: str) -> Receiver:
    """The service at ``url``, which may be secret as a whole: only its host is shown. Raises ``OptionError``."""
    parts = receivers.parsed(url, "--webhook")._replace(fragment="")
    headers = {"Content-Type": "application/json"}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    def write(items: Sequence[Item], *, lean: bool) -> bytes:
        return receivers.as_json(payload(items, version, lean=lean))

    name = f"webhook {receivers.shown(parts, path=False)}"
    return Receiver("webhook", name, receivers.without_user(parts), write, 50, headers)


def payload(items: Sequence[Item], version: str, *, lean: bool = False) -> dict[str, Any]:
    """``{"tool", "version", "sent_at", "text", "items": [...]}``; ``text`` is what chat services show."""
    titles = [one.incident.title for one in items[:5]]
    more = [f"and {len(items) - 5} more"] if len(items) > 5 else []
    return {
        "tool": "necropsy",
        "version": version,
        "sent_at": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "text": "\n".join([*titles, *more]),
        "items": [_item(one, lean=lean) for one in items],
    }


def _item(one: Item, *, lean: bool) -> dict[str, Any]:
    incident, group = one.incident, one.group
    lines = list(incidents.stack_lines(incident))
    values: dict[str, Any] = {
        "event_id": one.event_id,
        "kind": "bug" if group is not None else "death",
        "group": group.id if group is not None else None,
        "signature": incident.key if group is None else None,
        "title": incident.title,
        "rule": incident.rule,
        "confidence": incident.confidence,
        "at": one.at,
        "document": one.document_id,
        "details": list(incident.details),
        "places": [f"{place.path}:{place.line}" if place.line is not None else place.path for place in incident.places],
        "stack": lines[:_LEAN_LINES] if lean else lines,
        "versions": one.versions,
    }
    if group is not None:
        hosts = dict(list(group.hosts.items())[:20]) if lean else group.hosts
        values |= {"status": group.status, "count": group.count, "first": group.first, "last": group.last}
        values |= {"hosts": hosts, "example": group.example.path if group.example is not None else None}
    return {key: value for key, value in values.items() if value is not None}
