"""Where a result goes and in which form, the same for each command: ``--format``, ``-o``, ``--json``, ``--color``."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from necropsy import console
from necropsy.cli.messages import show
from necropsy.console import SLOW_S, understands_escapes, whole_width, write
from necropsy.errors import NecropsyError
from necropsy.reports import FORMATS, formats

if TYPE_CHECKING:
    from necropsy.model import Document


def _format(*more: str) -> Callable[..., Any]:
    return click.option(
        "--format",
        "form",
        type=click.Choice([*FORMATS, *more]),
        default="text",
        show_default=True,
        help="markdown: to paste into an issue; html: a page in one file.",
    )


FORMAT = _format(*formats.names("run"))
"""Of commands whose result is a report of a crash."""
FILE = click.option(
    "-o",
    "out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the result to FILE instead of stdout.",
)
JSON = click.option(
    "--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document."
)
FAILURE = click.option("--failure", metavar="FILE", type=click.Path(path_type=Path), hidden=True)
"""Where ``necropsy.run`` and ``necropsy.profile`` want to read why a command was not run."""


def _choose(_ctx: click.Context, _param: click.Parameter, when: str | None) -> None:
    if when is not None:
        console.choose_color({"auto": None, "always": True, "never": False}[when])


COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    expose_value=False,
    callback=_choose,
    help="Colour in text.  [default: auto: on a terminal]",
)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--format``, ``-o`` and ``--color``."""
    wrapped: Callable[..., Any] = _format()(FILE(COLOR(command)))
    return wrapped


FULL = click.option(
    "--full", is_flag=True, help="In text, show everything: stacks, all evidence, other causes, what is unknown."
)


def with_report(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that shows a report ``--full`` too."""
    wrapped: Callable[..., Any] = FORMAT(FILE(COLOR(FULL(command))))
    return wrapped


def writable(path: Path, option: str) -> Path:
    """``path`` if writable; raises ``NecropsyError``, or ``click.UsageError`` for ``-``, the program's stdout."""
    if str(path) == "-":
        raise click.UsageError(f"{option} takes a file: stdout belongs to the program; /dev/stderr works")
    from necropsy.reporting import descriptor_of

    if descriptor_of(path) is not None:
        return path
    try:
        _try(path)
    except OSError as error:
        raise NecropsyError(f"cannot write {path}: {error.strerror or error}; nothing was run") from error
    return path


def writable_folder(path: Path) -> None:
    """Check that a folder or files in it can be made at ``path``; raises ``NecropsyError`` if not."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise NecropsyError(f"cannot write below {path}: {error.strerror or error}; nothing was run") from error


def _try(path: Path) -> None:
    """Make and remove a file beside ``path``, which only a result may replace. Raises ``OSError``."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not path.is_file():
        return  # a pipe or a device: to open it could block
    with tempfile.TemporaryFile(dir=path.resolve().parent):
        pass


def deliver(render: Callable[[bool, int], str], out: Path | None) -> None:
    """Show ``render(color, width)`` on stdout, or write it to ``out`` for its owner only; raises ``NecropsyError``."""
    if out is None or str(out) == "-":
        show(render(*console.shape(1)))
        return
    from necropsy import report_archive

    try:
        with report_archive.private(out) as file:
            file.write(render(False, 80).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise NecropsyError(f"cannot write {out}: {error.strerror or error}") from error
    console.say(f"necropsy: wrote {out}")


@contextlib.contextmanager
def also_as_json(document: Document | None, path: Path | None) -> Iterator[None]:
    """Write the document to ``path``, if both are there, even if the text cannot be delivered.

    Raises ``NecropsyError`` if it cannot be written.
    """
    try:
        yield
    finally:
        if document is not None and path is not None:
            from necropsy.reporting import write_json

            try:
                write_json(document, path)
            except OSError as error:
                raise NecropsyError(f"cannot write {path}: {error.strerror or error}") from error


_PLAIN_LINE_S = 10.0
"""How often a line is written if stderr is not a terminal."""


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


class ProgressLine:
    """What a command is doing, once that takes longer than two seconds; quiet with CI or NO_COLOR set."""

    def __init__(self) -> None:
        quiet = os.environ.get("CI") or os.environ.get("NO_COLOR") or sys.stderr is None
        self.wanted = not quiet and os.isatty(2) and understands_escapes(2)
        self._since: dict[str, float] = {}
        self._told = time.monotonic()
        self._shown = False

    def importing(self, name: str) -> None:
        """``importing tensorflow, 5 s``."""
        now = time.monotonic()
        seconds = now - self._since.setdefault(name, now)
        if seconds >= SLOW_S:
            self.show(f"importing {name}, {seconds:.0f} s")

    def tell(self, text: str) -> None:
        """Write ``text`` over the last one on a terminal; elsewhere as a line every ten seconds, except with CI set."""
        if self.wanted:
            self.show(text)
        elif text and time.monotonic() - self._told >= _PLAIN_LINE_S and not os.environ.get("CI"):
            self._told = time.monotonic()
            print(f"necropsy: {_printable(text)}", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Write ``text`` over the last one."""
        self._shown = True
        write(f"\r\x1b[K{_printable(text)[: (whole_width(2) or 80) - 1]}")

    def wipe(self) -> None:
        """Leave an empty line behind."""
        if self._shown:
            self._shown = False
            write("\r\x1b[K")
