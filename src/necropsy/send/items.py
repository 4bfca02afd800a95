"""What is sent: an item for each death or bug, with every text masked before anything is made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec

from necropsy import redact
from necropsy.model import BugGroup, Document, Report
from necropsy.reports import incidents, wording
from necropsy.reports.incidents import Incident


@dataclass(frozen=True)
class Item:
    """One death of a report, or one bug of a triage."""

    key: str
    """What a store remembers as sent: the same for the same death, or for the same state of a bug."""
    event_id: str
    """32 hex digits, the same each time that it is sent: receivers count it once."""
    incident: Incident
    document_id: str
    at: str | None
    """When the process died, of a bug the last one; ISO 8601 in UTC."""
    hosts: tuple[str, ...]
    versions: dict[str, str]
    """By library: the version; of a bug the most frequent one."""
    report: Report | None
    """The death, or an example of the bug, with its stacks; None if its report no longer exists."""

    @property
    def group(self) -> BugGroup | None:
        """The bug, if it is one."""
        return self.incident.group

    @property
    def seconds(self) -> float | None:
        """``at`` in seconds since 1970; None where it is not known."""
        try:
            when = datetime.fromisoformat((self.at or "").replace("Z", "+00:00"))
        except ValueError:
            return None
        return (when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)).timestamp()


def deaths(document: Document) -> Iterator[Item]:
    """The deaths of a report that no other death explains."""
    for place, report in enumerate(document.reports):
        if wording.follows(report, document):
            continue
        one = redact.noun(report)
        crash = one.crash
        key = f"{document.id}/{place}"
        yield Item(
            key=key,
            event_id=_hex(key),
            incident=incidents.of_report(one),
            document_id=document.id,
            at=crash.at or _time_of(document.id),
            hosts=(document.host,) if document.host else (),
            versions=dict(sorted((crash.libraries or {}).items())),
            report=one,
        )


def news(
    groups: tuple[BugGroup, ...], document_id: str, example: Callable[[BugGroup], Report | None]
) -> Iterator[Item]:
    """The open bugs. ``example`` finds a report of one, if there is any."""
    for group in groups:
        if group.status == "closed":
            continue
        one = _masked(group)
        found = example(group)
        key = group.id + (f" back after {group.closed_at or group.fixed_in}" if group.status == "regression" else "")
        yield Item(
            key=key,
            event_id=_hex(key),
            incident=incidents.of_group(one),
            document_id=_example_id(one) or document_id,
            at=one.last,
            hosts=tuple(sorted(one.hosts, key=lambda name: (-one.hosts[name], name))),
            versions={
                library: max(used, key=lambda name: used[name]) for library, used in one.versions.items() if used
            },
            report=redact.noun(found) if found is not None else None,
        )


def _masked(group: BugGroup) -> BugGroup:
    """Also the names of hosts, libraries and versions, which are keys. The members, up to 1,000, are not sent."""
    one = redact.noun(msgspec.structs.replace(group, members=(), worst=None))
    hosts: dict[str, int] = {}
    for name, count in one.hosts.items():
        hosts[redact.text(name)] = hosts.get(redact.text(name), 0) + count
    versions = {
        redact.text(library): {redact.text(name): count for name, count in used.items()}
        for library, used in one.versions.items()
    }
    return msgspec.structs.replace(one, hosts=hosts, versions=versions)


def _example_id(group: BugGroup) -> str | None:
    return group.example.id if group.example is not None else None


def _hex(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _time_of(identity: str) -> str | None:
    """Ids of documents begin with the time: ``20261121T004512Z-9f86d081``."""
    try:
        when = datetime.strptime(identity[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
