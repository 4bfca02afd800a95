"""The page of a rule as part of a report: why the rule says so, how to be sure, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from necropsy.rules import crash_rules, data_rules, environment_rules, op_rules

if TYPE_CHECKING:
    import markupsafe

_HEADING = re.compile(r"^(?P<words>\S.*)\n-{3,}$", re.MULTILINE)
_MARK = re.compile(r"``(?P<code>.+?)``|\*\*(?P<strong>[^*]+)\*\*|(?<![\w*])\*(?P<em>[^*\s](?:[^*]*[^*\s])?)\*(?![\w*])")
_LEFT_OUT = frozenset({"Sources"})
"""Links to other sites, which a page without a network does not need."""


@lru_cache(maxsize=64)
def _page(name: str) -> str | None:
    """A page; rules on crashes are asked first, because they are loaded anyway."""
    for rules in (crash_rules, environment_rules, op_rules, data_rules):
        found = next((rule.page for rule in rules() if rule.name == name), None)
        if found is not None:
            return found
    return None


def title(name: str) -> str | None:
    """The first line of the page of rule ``name``; None where there is no such rule."""
    page = _page(name)
    return page.strip().partition("\n")[0].rstrip(".") if page is not None else None


def titles(names: Iterable[str]) -> dict[str, str]:
    """Those of ``names`` that are rules with a page, each once, and its title."""
    return {name: said for name in dict.fromkeys(names) if (said := title(name)) is not None}


def markup(name: str) -> markupsafe.Markup:
    """The page of rule ``name`` below its title, its headings as ``h3``.

    Raises:
        KeyError: there is no such rule.

    """
    import markupsafe

    page = _page(name)
    if page is None:
        raise KeyError(name)
    _, _, rest = page.strip().partition("\n")
    parts = _HEADING.split(rest)
    made = [_blocks(parts[0])]
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        if heading not in _LEFT_OUT:
            made += [markupsafe.Markup("<h3>{}</h3>\n").format(heading), _blocks(body)]
    return markupsafe.Markup("").join(made)


def _blocks(text: str) -> markupsafe.Markup:
    """Paragraphs, and lists of lines that begin with a hyphen."""
    import markupsafe

    made = markupsafe.Markup("")
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("- "):
            items = re.split(r"\n(?=- )", block)
            listed = (markupsafe.Markup("<li>{}</li>\n").format(_inline(item[2:])) for item in items)
            made += markupsafe.Markup("<ul>\n{}</ul>\n").format(markupsafe.Markup("").join(listed))
        elif block:
            made += markupsafe.Markup("<p>{}</p>\n").format(_inline(block))
    return made


def _inline(text: str) -> markupsafe.Markup:
    import markupsafe

    words = " ".join(text.split())
    made, end = markupsafe.Markup(""), 0
    for found in _MARK.finditer(words):
        tag = found.lastgroup or "code"
        made += markupsafe.escape(words[end : found.start()])
        made += markupsafe.Markup(f"<{tag}>{{}}</{tag}>").format(found[tag])  # noqa: S704 - the tag is a group's name
        end = found.end()
    return made + markupsafe.escape(words[end:])
