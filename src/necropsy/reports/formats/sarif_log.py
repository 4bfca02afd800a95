"""What every SARIF log has: the tool with its rules, one run, and places as GitHub reads them.

"Static Analysis Results Interchange Format (SARIF) Version 2.1.0", OASIS Standard; what GitHub requires beyond it:
https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from necropsy.model import Tool

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def dumps(
    tool: Tool, rules: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]], notes: Sequence[str] = ()
) -> str:
    """A log with one run. ``notes``: what a reader has to know of the run as a whole."""
    run = {
        "tool": {"driver": {"name": tool.name, "semanticVersion": tool.version, "rules": list(rules)}},
        "columnKind": "unicodeCodePoints",
        "results": list(results),
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [{"level": "note", "message": {"text": text}} for text in notes],
            }
        ],
    }
    text = json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)
    return text.replace("##", "#\\u0023") + "\n"  # Azure Pipelines and TeamCity read commands anywhere in a line


def rule(name: str, title: str | None, level: str, page: str | None) -> dict[str, Any]:
    """One rule, with its page as help."""
    title = title or (page.strip().partition("\n")[0] if page is not None else None)
    return {
        "id": name,
        **({"shortDescription": {"text": title}} if title else {}),
        **({"help": {"text": page}} if page is not None else {}),
        "defaultConfiguration": {"level": level},
    }


def physical(path: str, line: int | None, *, column: int | None = None, end_line: int | None = None) -> dict[str, Any]:
    """A ``physicalLocation``. A library has no lines, but GitHub requires one."""
    region: dict[str, int] = {"startLine": max(line or 1, 1)}
    if column is not None:
        region["startColumn"] = column
    if end_line is not None:
        region["endLine"] = end_line
    return {"artifactLocation": {"uri": uri(path)}, "region": region}


def uri(path: str) -> str:
    """Relative to the working directory, which is the repository's root in CI; else a file URI."""
    whole = Path(path)
    if whole.is_absolute():
        try:
            whole = whole.relative_to(Path.cwd())
        except ValueError:
            return whole.as_uri()
    return quote(os.fsencode(whole.as_posix()))
