"""Pages that hold whole programs: their files, the commands that build and run them, and the place of the output.

A section of such a page has each file as a code block below its name (`` `train.py` ``), then the commands as an ``sh``
block, then a pair of comments (``<!-- NAME: begin -->``, ``<!-- NAME: end -->``) with the output between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"^`([\w.]+)`\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"<!-- ([\w-]+): begin[^\n]*-->\n(.*?)<!-- \1: end -->", re.DOTALL)


@dataclass(frozen=True)
class Program:
    """One section: what is in its files, the shell commands, and the output that the page shows."""

    name: str
    files: dict[str, str]
    commands: str
    shown: str

    def written(self, folder: Path) -> Path:
        """The new folder with its files."""
        place = folder / self.name
        place.mkdir()
        for name, text in self.files.items():
            (place / name).write_text(text)
        return place


def programs(page: str) -> dict[str, Program]:
    """Name of the output -> program, in the order of the page.

    Raises:
        ValueError: a section has a place for output, and no commands.
    """
    found: dict[str, Program] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        shown, commands = _SHOWN.search(section), _COMMANDS.search(section)
        if shown is None:
            continue
        if commands is None:
            raise ValueError(f"no commands for the output {shown[1]}")
        found[shown[1]] = Program(shown[1], dict(_FILE.findall(section)), commands[1], shown[2])
    return found
