"""The terminal: muted during replays, and the message about a crash that no test caused."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from necropsy.pytest_plugin import failures
from necropsy.pytest_plugin.progress import Death


class Mute:
    """Keeps pytest's terminal reporter from printing; it counts and remembers as always."""

    def __init__(self, config: pytest.Config) -> None:
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._writer: Any = getattr(reporter, "_tw", None)
        self._file: Any = None

    def begin(self) -> None:
        """Print nothing from now on."""
        if self._writer is not None and self._file is None:
            self._file, self._writer._file = self._writer._file, io.StringIO()  # noqa: SLF001 - there is no other way

    def end(self) -> None:
        """Print again."""
        if self._file is not None:
            self._writer._file, self._file = self._file, None  # noqa: SLF001 - as above


_WHEN = {
    "": "before pytest was configured",
    "configure": "while pytest was being configured",
    "collect": "while tests were being collected",
    "run": "between two tests",
    "finish": "while the session was being finished",
    "end": "while Python was ending",
}


def tell(config: pytest.Config, death: Death, stage: str) -> None:
    """Print what is known of a death that is no test's."""
    where = {"collect": f"while {death.name or 'a plugin'} was being collected, again"}.get(
        death.place, f"while {death.name} was being imported, again" if death.place == "conftest" else _WHEN[stage]
    )
    lines = [f"The pytest process {death.pid} {death.end} {where}; the session ends here."]
    lines += [failures.headline(death), "", *failures.text_of(death)]
    writer: Any = create_terminal_writer(config, sys.stdout)
    writer.line()
    writer.sep("=", "necropsy: a crash outside the tests", red=True, bold=True)
    for line in lines:
        writer.line(line)
    writer.flush()
