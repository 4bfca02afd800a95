"""What the command line says: results on stdout, errors in one line on stderr."""

from __future__ import annotations

import os

import click

from necropsy.console import say
from necropsy.errors import NecropsyError

INTERRUPTED = 130


def tell(error: BaseException, *, running: bool = True) -> int:
    """One line for an error, and the exit status that belongs to it."""
    if os.environ.get("NECROPSY_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        usage = f" (see necropsy{' run' if running else ''} --help)" if isinstance(error, click.UsageError) else ""
        say(f"necropsy: {error.format_message()}{usage}")
        return NecropsyError.exit_code if running else error.exit_code
    if isinstance(error, NecropsyError):
        say(f"necropsy: {error}")
        if error.hint:
            say(f"  {error.hint}")
        return error.exit_code
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    say(f"necropsy: {what} (a defect of necropsy; NECROPSY_DEBUG=1 shows more)")
    return NecropsyError.exit_code


def show(text: str) -> None:
    """A result on stdout.

    Raises:
        NecropsyError: it cannot be written.

    """
    try:
        click.echo(text.encode("utf-8", "backslashreplace"), nl=False)
    except BrokenPipeError:
        raise  # click ends silently
    except OSError as error:
        raise NecropsyError(f"cannot write to stdout: {error.strerror or error}") from error
