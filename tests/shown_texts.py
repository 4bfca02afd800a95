"""The texts that users see, with the place of each: strings of the code, tables, rule pages, help and guides."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import tomllib

from necropsy.cli.commands import cli
from necropsy.rule import Rule
from necropsy.rules import audit_rules, crash_rules, data_rules, environment_rules

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "necropsy"
_NOT_TEXT = {"hit", "miss", "pattern", "command", "example", "regex"}
"""Keyword arguments whose strings are input or code: a rule's sketches, patterns, commands to type."""
_COLUMNS = {"by", "cause", "claim", "decide", "mistaken", "next", "note", "title", "versions", "what", "why"}
"""The columns of data/*.toml that are shown."""
_CODE = re.compile(r"\(\?|\\[bdsw.(\[]|\bimport \w|^\s*[<.#{]|\bsigned main\b|^\s*CREATE (?:TABLE|VIEW) ")
"""Regular expressions, code, SQL and markup."""
_WITHOUT_TEXT = (ast.Name, ast.expr_context, ast.operator, ast.cmpop)
"""Most nodes are such."""


@functools.cache
def all_texts() -> tuple[tuple[str, str], ...]:
    """(place, text) of everything, each text with single spaces."""
    return tuple(
        (place, " ".join(text.split()))
        for texts in (strings(), tables(), pages(), pages_of_examinations(), helps(), guides())
        for place, text in texts
    )


def strings() -> Iterator[tuple[str, str]]:
    """The strings of three words or more in the code, without docstrings, patterns and code."""
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in _strings(ast.parse(path.read_text(encoding="utf-8"))):
            if len(text.split()) >= 3 and not _CODE.search(text):
                yield f"{path.relative_to(SOURCE).as_posix()}:{line}", text


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string below ``tree``, with its line. Each node is looked at once: there are a million."""
    left: list[object] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_part(one) for one in node.values)
            left += [one for one in node.values if not isinstance(one, ast.Constant)]
        elif isinstance(node, ast.AST) and not isinstance(node, _WITHOUT_TEXT) and not _is_not_shown(node):
            left += [getattr(node, name) for name in node._fields]


def _part(node: ast.expr) -> str:
    """A value that is filled in counts as one word."""
    return str(node.value) if isinstance(node, ast.Constant) else "X"


def _is_not_shown(node: ast.AST) -> bool:
    """Nothing below it is shown: a docstring, or an argument that is input or code."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.keyword) and node.arg in _NOT_TEXT


def tables() -> Iterator[tuple[str, str]]:
    """The columns of the data tables that are shown."""
    for path in sorted((SOURCE / "data").glob("*.toml")):
        for text in _columns(tomllib.loads(path.read_text(encoding="utf-8")), shown=False):
            yield f"data/{path.name}", text


def _columns(value: object, *, shown: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _columns(each, shown=key in _COLUMNS)
    elif isinstance(value, list):
        for each in value:
            yield from _columns(each, shown=shown)
    elif shown and isinstance(value, str):
        yield value


def pages() -> Iterator[tuple[str, str]]:
    """The paragraphs and the points of lists of the crash rules' pages, without headings and sources."""
    yield from _paragraphs(crash_rules())


def pages_of_examinations() -> Iterator[tuple[str, str]]:
    """The same of the rules on environments, libraries and datasets."""
    yield from _paragraphs((*environment_rules(), *audit_rules(), *data_rules()))


def _paragraphs(rules: Iterable[Rule[Any]]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        page = re.split(r"\nSources\n-+", rule.page)[0]
        page = re.sub(r"[^\n]+\n-{3,}\n", "\n", page)
        for paragraph in re.split(r"\n\s*\n|\n(?=- )", page):
            if paragraph.strip():
                yield f"rule {rule.name}", paragraph


def helps() -> Iterator[tuple[str, str]]:
    """The help of each command, as it is printed on 80 columns."""
    for name, command in (("", cli), *cli.commands.items()):
        context = click.Context(command, info_name=f"necropsy {name}".rstrip(), terminal_width=80)
        yield f"necropsy {name} --help", command.get_help(context)


def guides() -> Iterator[tuple[str, str]]:
    """The paragraphs, the points of lists and the rows of tables of the manual's hand-written pages, without code."""
    for folder in (".", "how-to", "tutorial", "explanation"):
        for path in sorted((ROOT / "docs" / folder).glob("*.md")):
            text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
            for paragraph in re.split(r"\n\s*\n|\n(?= *(?:-|\d+\.) |\|)", text):
                yield path.relative_to(ROOT).as_posix(), paragraph


def guidance() -> Iterator[tuple[str, str]]:
    """The sentences of the tutorial, the guides and the pages that help: no tables, no headings, no background."""
    for place, text in guides():
        if not text.lstrip().startswith(("|", "#")) and not place.startswith("docs/explanation/"):
            yield place, text


def sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [one for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"(])", text.strip()) if one.strip()]
