"""What the command line says: results on stdout, errors in one line on stderr."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from necropsy.console import say
from necropsy.errors import NecropsyError, OptionError

INTERRUPTED = 130
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def tell(error: BaseException, *, command: str | None = "run") -> int:
    """One line for an error of ``command``, and the exit status that belongs to it."""
    if os.environ.get("NECROPSY_DEBUG") == "1":
        import traceback

        from necropsy.reports.terminal import without_commands

        for line in without_commands("".join(traceback.format_exception(error))).splitlines():
            say(line)
    if isinstance(error, NecropsyError):
        say(f"necropsy: {error}")
        if error.hint:
            say(f"  {error.hint}")
        return NecropsyError.exit_code if isinstance(error, OptionError) and command == "run" else error.exit_code
    if isinstance(error, MemoryError):
        say("necropsy: not enough memory")
        return NecropsyError.exit_code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    click = sys.modules.get("click")  # it raises nothing where it was not needed
    if click is not None and isinstance(error, click.Abort):
        return INTERRUPTED
    if click is not None and isinstance(error, click.ClickException):
        usage = ""
        if isinstance(error, click.UsageError):
            whose = error.ctx.command_path if error.ctx is not None else f"necropsy {command or ''}".strip()
            usage = f" (see {whose} --help)"
        say(f"necropsy: {error.format_message()}{usage}")
        return NecropsyError.exit_code if command == "run" else error.exit_code
    if isinstance(error, OSError) and error.errno in _FULL:
        _drop_what_is_left()
        say(f"necropsy: {error.strerror}{f': {error.filename}' if error.filename else ''}")
        return NecropsyError.exit_code
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    say(f"necropsy: {what} (a defect of necropsy; NECROPSY_DEBUG=1 shows more)")
    return NecropsyError.exit_code


def show(text: str) -> None:
    """Print a result on stdout; raises ``NecropsyError`` if that fails."""
    import click

    try:
        click.echo(text.encode("utf-8", "backslashreplace"), nl=False)
    except BrokenPipeError:
        raise  # click ends silently
    except OSError as error:
        _drop_what_is_left()
        raise NecropsyError(f"cannot write to stdout: {error.strerror or error}") from error


def written() -> None:
    """Flush stdout, ignoring a reader that has closed its end; raises ``OSError`` if that fails."""
    if sys.stdout is None or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_what_is_left()


def _drop_what_is_left() -> None:
    """Otherwise Python would try again at exit and print its own message."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
