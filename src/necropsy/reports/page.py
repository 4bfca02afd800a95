"""What every page has: the template engine, the style, one script, and a policy that lets nothing else load or run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from necropsy.reports.stack import fit_name
from necropsy.reports.terminal import clean, size

if TYPE_CHECKING:
    import jinja2
    import markupsafe

    from necropsy.model import Tool

_TEMPLATES = (
    "page.html.j2",
    "report.html.j2",
    "parts.html.j2",
    "findings.html.j2",
    "table.html.j2",
    "dataset.html.j2",
    "reduction.html.j2",
    "profile.html.j2",
    "triage.html.j2",
)
_CALL_COLUMNS = 74

# As ``layout.without_commands``, in a page's own way of writing a character.
_AT_START = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_ANYWHERE = re.compile(r"#(?=#(?:\[|vso\[|teamcity\[))")


def render(
    name: str,
    values: Mapping[str, Any],
    *,
    title: str,
    identity: str | None = None,
    tool: Tool | None = None,
    markdown: str | None = None,
    extra: str | None = None,
) -> str:
    """Render template ``name``. ``markdown``: for the copy button; ``identity`` and ``tool``: for the footer.

    ``extra``: the page has the style and the script of this name too (``triage`` for triage.css and triage.js).
    """
    page = (
        _engine()
        .get_template(name)
        .render(
            **values,
            title=title[:200],
            identity=identity,
            tool=tool,
            markdown=markdown,
            style=_own("report.css") + (_own(f"{extra}.css") if extra is not None else ""),
            script=_own("page.js") + (_own(f"{extra}.js") if extra is not None else ""),
        )
    )
    head, style, body = page.partition("</style>")
    return head + style + _ANYWHERE.sub("&#35;", _AT_START.sub(r"\1&#58;", body))


def moment(iso: str) -> str:
    """A time by ISO 8601 as a person writes it, in UTC: ``22 November 2026, 22:28:30 UTC``; as it is if it is none."""
    try:
        at = datetime.fromisoformat(re.sub(r"(\.\d+)?Z$", "+00:00", iso)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return iso
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}, {at:%H:%M:%S} UTC"


# Not strftime, whose months are those of the reader's locale.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


@lru_cache(maxsize=4)
def _own(name: str) -> markupsafe.Markup:
    """A file of the package, inserted unchanged."""
    import markupsafe

    text = files("necropsy.reports").joinpath(name).read_text(encoding="utf-8")
    return markupsafe.Markup(text)  # noqa: S704 - nothing is filled in


def _csp_hash(text: str) -> str:
    """The form of an allowed script or style in a Content-Security-Policy (CSP Level 3, hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@lru_cache(maxsize=1)
def _engine() -> jinja2.Environment:
    """Every value is escaped and made printable."""
    import jinja2
    import markupsafe

    def printable(value: object) -> object:
        return clean(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value

    folder = files("necropsy.reports")
    texts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in _TEMPLATES}
    made = jinja2.Environment(
        autoescape=True,
        finalize=printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader(texts),
    )
    made.filters |= {
        "coded": _coded,
        "whole": _whole,
        "csp_hash": _csp_hash,
        "moment": moment,
        "size": size,
        "fitted": lambda name: fit_name(clean(name), _CALL_COLUMNS),
    }
    return made


def _coded(value: str) -> markupsafe.Markup:
    """Backticked code becomes elements; everything is escaped."""
    import markupsafe

    pieces = re.split(r"`([^`\n]+)`", clean(value))
    return markupsafe.Markup("").join(
        markupsafe.Markup("<code>{}</code>").format(piece) if place % 2 else piece for place, piece in enumerate(pieces)
    )


def _whole(value: str) -> markupsafe.Markup:
    import markupsafe

    return markupsafe.Markup("\n").join(clean(line) for line in value.split("\n"))
