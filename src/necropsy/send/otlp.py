"""Crashes as log records of OpenTelemetry: OTLP over HTTP, in JSON.

https://opentelemetry.io/docs/specs/otlp/#otlphttp and the data model of logs; 64-bit numbers are strings in JSON.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from necropsy.reports import incidents, wording
from necropsy.reports.terminal import clean
from necropsy.send import receivers
from necropsy.send.items import Item
from necropsy.send.receivers import Receiver

_PATH = "/v1/logs"
_FATAL = 21
_LEAN_FRAMES = 5


def receiver(url: str, version: str, variables: Mapping[str, str] = os.environ) -> Receiver:
    """The collector at ``url``: its address, with or without ``/v1/logs``. Raises ``OptionError``.

    Headers are taken from OTEL_EXPORTER_OTLP_HEADERS, as by other exporters.
    """
    parts = receivers.parsed(url, "--otlp")
    path = parts.path.rstrip("/")
    parts = parts._replace(path=path if path.endswith(_PATH) else path + _PATH, fragment="")
    headers = {"Content-Type": "application/json", **_headers(variables.get("OTEL_EXPORTER_OTLP_HEADERS", ""))}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.setdefault("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    service = variables.get("OTEL_SERVICE_NAME") or "necropsy"

    def write(items: Sequence[Item], *, lean: bool) -> bytes:
        return receivers.as_json(payload(items, version, service, lean=lean))

    return Receiver(
        "otlp", f"otlp {receivers.shown(parts)}", receivers.without_user(parts), write, 100, headers, _judged
    )


def _headers(text: str) -> dict[str, str]:
    """``name=value,name=value``, with values as in a URL."""
    pairs = (one.partition("=") for one in text.split(",") if "=" in one)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}


def _judged(answer: bytes) -> str | None:
    try:
        partial = json.loads(answer or b"{}").get("partialSuccess") or {}
        rejected = int(partial.get("rejectedLogRecords") or 0)
        said = clean(str(partial.get("errorMessage") or ""))[:200]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None  # a proxy's page, say: the status counts
    return f"{rejected} records were rejected" + (f": {said}" if said else "") if rejected > 0 else None


def payload(items: Sequence[Item], version: str, service: str, *, lean: bool = False) -> dict[str, Any]:
    """An ``ExportLogsServiceRequest``: a resource for each host, a record for each item."""
    by_host: dict[str | None, list[Item]] = {}
    for one in items:
        by_host.setdefault(one.hosts[0] if len(one.hosts) == 1 else None, []).append(one)
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes({"service.name": service, "host.name": host})},
                "scopeLogs": [
                    {
                        "scope": {"name": "necropsy", "version": version},
                        "logRecords": [_record(one, lean=lean) for one in group],
                    }
                ],
            }
            for host, group in by_host.items()
        ]
    }


def _record(one: Item, *, lean: bool) -> dict[str, Any]:
    incident, group = one.incident, one.group
    stack = list(incidents.stack_lines(incident))
    at = one.seconds
    place = next((place for place in incident.places if place.line is not None), None)
    end = wording.end_in_a_word(one.report.crash) if one.report is not None else (group.end if group else None)
    values: dict[str, Any] = {
        "exception.type": end or incident.rule,
        "exception.message": incident.title,
        "exception.stacktrace": "\n".join(stack[:_LEAN_FRAMES] if lean else stack) or None,
        "code.function.name": incident.stack[0].function if incident.stack else None,
        "code.file.path": place.path if place is not None else None,
        "code.line.number": place.line if place is not None else None,
        "process.pid": one.report.pid if one.report is not None and group is None else None,
        "necropsy.rule": incident.rule,
        "necropsy.confidence": incident.confidence,
        "necropsy.document.id": one.document_id,
        "necropsy.event.id": one.event_id,
    }
    if group is not None:
        values |= {
            "necropsy.group.id": group.id,
            "necropsy.group.status": group.status,
            "necropsy.group.count": group.count,
            "necropsy.group.first": group.first,
            "necropsy.group.hosts": len(group.hosts),
        }
    else:
        values["necropsy.signature"] = incident.key
    if not lean:
        values |= {f"necropsy.version.{library}": version for library, version in one.versions.items()}
    return {
        **({"timeUnixNano": str(int(at * 1_000_000) * 1_000)} if at is not None and at >= 0 else {}),
        "observedTimeUnixNano": str(time.time_ns()),
        "severityNumber": _FATAL,
        "severityText": "FATAL",
        "eventName": "app.crash",
        "body": {"stringValue": incident.title},
        "attributes": _attributes(values),
    }


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": str(value)}
