"""The page of a rule as part of a report: why the rule says so, how to be sure, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import markupsafe

_HEADING = re.compile(r"^(?P<words>\S.*)\n-{3,}$", re.MULTILINE)
_MARK = re.compile(r"``(?P<code>.+?)``|\*\*(?P<strong>[^*]+)\*\*|(?<![\w*])\*(?P<em>[^*\s](?:[^*]*[^*\s])?)\*(?![\w*])")
_LEFT_OUT = frozenset({"Sources", "Does the advice work?"})
"""Links to other sites, which a page without a network does not need, and what is for those who test the rules."""

Source = Callable[[str], "str | None"]
"""The page of the rule of this name; None if there is no such rule."""


class RulePage(NamedTuple):
    """The page of one rule: its first line, and what is below it, with headings as ``h3``."""

    title: str
    text: markupsafe.Markup


def pages(names: Iterable[str], source: Source | None) -> dict[str, RulePage]:
    """The pages of those of ``names`` that are rules, each once, in order; none without a ``source``."""
    if source is None:
        return {}
    found = ((name, source(name)) for name in dict.fromkeys(names))
    return {name: _made(page) for name, page in found if page is not None}


def _made(page: str) -> RulePage:
    import markupsafe

    title, _, rest = page.strip().partition("\n")
    parts = _HEADING.split(rest)
    made = [_blocks(parts[0])]
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        if heading not in _LEFT_OUT:
            made += [markupsafe.Markup("<h3>{}</h3>\n").format(heading), _blocks(body)]
    return RulePage(title.rstrip("."), markupsafe.Markup("").join(made))


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
