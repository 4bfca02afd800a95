"""The command line: each subcommand composes verbs, and what goes wrong is told in one line by the one ``except``.

``necropsy run`` writes nothing to stdout, ever: it is the program's own. Everything goes to stderr, once the program
has ended. What is slow to import is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from necropsy import __version__
from necropsy.errors import NecropsyError

if TYPE_CHECKING:
    from necropsy.document import Ended
    from necropsy.model import Document

USAGE = 2
"""What click ends with where the command line is wrong; ``necropsy run`` ends with 125, as env(1) does."""
INTERRUPTED = 130


class _Run(click.Command):
    """``run``: whatever follows the command, or the module behind ``-m``, belongs to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._close_options(args))

    def _close_options(self, args: list[str]) -> list[str]:
        """``-m package.module --its-option`` becomes ``-m package.module -- --its-option``, as python(1) reads it."""
        takes_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in (*param.opts, *param.secondary_opts)
        }
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] != "--":
            word = args[place]
            if word == "-m":
                return [*args[: place + 2], "--", *args[place + 2 :]]
            if word.startswith("-m") and not word.startswith("--"):
                return [*args[:place], "-m", word[2:], "--", *args[place + 1 :]]
            place += 2 if word in takes_value else 1
        return args


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="necropsy", message="%(prog)s %(version)s")
def cli() -> None:
    """Finds out what killed a Python process, shows the evidence, and proves it.

    \b
      necropsy run python train.py     run a program; if it dies, say what killed it
      necropsy explain 0xC0000409      what an exit code means, and what to do next
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines


@cli.command(
    cls=_Run,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    options_metavar="[OPTIONS] [--]",
    short_help="Run a program; if it dies natively, say what killed it.",
)
@click.option(
    "-m", "module", metavar="MODULE", help="Run a module as `python -m MODULE` does; the rest is its arguments."
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the JSON document, after healthy runs too.",
)
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep every run in a folder of its own below DIR: report.json and report.txt.",
)
@click.option("--quiet", is_flag=True, help="Print no report; --json and --output are written all the same.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop the program after this time, with TERM and then KILL; the exit code is then 124.",
)
@click.option(
    "--log",
    type=click.Choice(["auto", "tap", "pty", "off"]),
    default="auto",
    show_default=True,
    help="How the end of stderr is read: docs/how-to/log-modes.md tells the price of each.",
)
@click.option(
    "--python-locals", is_flag=True, help="Show the local variables of the Python frames. They may hold secrets."
)
@click.option("--always", is_flag=True, help="Report on healthy runs too: how much of its stack each thread used.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")
@click.pass_context
def run(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    module: str | None,
    json_file: Path | None,
    output: Path | None,
    quiet: bool,
    timeout: float | None,
    log: str,
    python_locals: bool,
    always: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as it would run without necropsy: same input, output, terminal and signals, same exit status.

    A healthy run prints nothing. If the program dies natively (a signal, abort(), a failed CHECK), a report on stderr
    says what killed it. Failures of necropsy itself end with 125; 126: COMMAND cannot be executed; 127: not found.

    With -m, the interpreter is the `python` of your PATH, or else the one that runs necropsy.
    """
    if module is not None:
        command = (_python(), "-m", module, *command)
    if not command:
        raise click.UsageError("which command? For example: necropsy run python train.py", ctx)
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy run` does not work on {sys.platform} yet; `necropsy explain CODE` does")

    from necropsy.capture.linux import launch

    options = launch.RunOptions(
        timeout_s=timeout,
        log=log,
        python_locals=python_locals,
        always=always,
        keep=tuple(filter(None, [_descriptor(json_file)])),
    )
    told = _Told(json_file=json_file, output=output, quiet=quiet, always=always, timeout=timeout)
    ctx.exit(launch.run(command, options, _guarded(lambda ended: told.on_end(ended, command))))


def _python() -> str:
    """The `python` that the user would get by typing it; inside of pipx or uvx that is not the one that runs us."""
    import shutil

    return shutil.which("python") or sys.executable


class _Told:
    """What is done with the end of a run, as the options say. It happens in the tracer, beside the command's end."""

    def __init__(
        self, *, json_file: Path | None, output: Path | None, quiet: bool, always: bool, timeout: float | None
    ) -> None:
        # Paths are meant from where the user stood.
        self.json_file = json_file.absolute() if json_file else None
        self.output = output.absolute() if output else None
        self.quiet = quiet
        self.always = always
        self.timeout = timeout

    def on_end(self, ended: Ended, command: Sequence[str]) -> None:
        """Judge, write, print: in this order, so that the text can name the files; no step can cost another."""
        from necropsy.document import news, of_run
        from necropsy.reports import text
        from necropsy.rules import crash_rules

        document = of_run(ended, command, crash_rules())
        kept = self._write(document)
        if self.quiet:
            return
        if ended.timed_out and self.timeout is not None:
            _say(f"necropsy: the time limit of {self.timeout:g} s passed; the program was stopped")
        shown = document if self.always else news(document, timed_out=ended.timed_out)
        if shown.reports or self.always:
            color, width = _terminal()
            _print(text.render(shown, color=color, width=width, json_file=kept))

    def _write(self, document: Document) -> Path | None:
        """Write what the options ask for; the JSON file that is there now, if there is one."""
        kept = None
        if self.output is not None:
            folder = self.output / document.id
            if _attempt(f"cannot write below {self.output}", _keep, document, folder):
                kept = folder / "report.json"
        path = self.json_file
        if path is not None and _attempt(f"cannot write {path}", _write_json, document, path):
            kept = path
        return kept


def _descriptor(path: Path | None) -> int | None:
    """The file descriptor that ``/dev/stdout`` and its like name: such a path must not be replaced, but written to."""
    import re

    match = re.fullmatch(r"/dev/(?:(stdout)|(stderr)|fd/(\d+))|/proc/self/fd/(\d+)", str(path)) if path else None
    if match is None:
        return None
    return 1 if match[1] else 2 if match[2] else int(match[3] or match[4])


def _write_json(document: Document, path: Path) -> None:
    """The document to a file, or to an open file descriptor.

    Raises:
        OSError: it cannot be written.

    """
    from necropsy import record

    handle = _descriptor(path)
    if handle is None:
        # Through a symbolic link, the file that it names is replaced, not the link.
        record.write(document, path.resolve())
        return
    data = memoryview(record.dumps(document))
    while data:
        data = data[os.write(handle, data) :]


def _keep(document: Document, folder: Path) -> None:
    """``report.json`` and ``report.txt`` in a new folder, for the owner's eyes only.

    Raises:
        OSError: the folder cannot be made or written to.

    """
    from necropsy import record
    from necropsy.reports import text

    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    record.write(document, folder / "report.json")
    handle = os.open(folder / "report.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text.render(document, color=False, width=80))


P = ParamSpec("P")


def _attempt(what: str, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Do it and say so; a full disk or a missing folder is told in one line and costs nothing else."""
    try:
        step(*args, **kwargs)
    except OSError as error:
        _say(f"necropsy: {what}: {error.strerror or error}")
        return False
    return True


def _guarded(step: Callable[[Ended], None]) -> Callable[[Ended], None]:
    """The same step, which tells in one line what goes wrong in it: the command's end must not depend on it."""

    def guarded(ended: Ended) -> None:
        try:
            step(ended)
        except Exception as error:  # noqa: BLE001 - in the tracer, where main's own `except` cannot reach
            _tell(error)

    return guarded


# ---------------------------------------------------------------- explain, demo


@cli.command(
    context_settings={"ignore_unknown_options": True},
    short_help="What an exit code, a signal or a verdict means, and what to do next.",
)
@click.option("--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document.")
@click.argument("code", nargs=-1, required=True, type=click.UNPROCESSED, metavar="CODE...")
def explain(code: tuple[str, ...], json_file: Path | None) -> None:
    """Explain an exit code in any spelling, a signal, or the name of a verdict.

    \b
      necropsy explain 0xC0000409
      necropsy explain -1073740791
      necropsy explain 139
      necropsy explain SIGSEGV
      necropsy explain stack-smash
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import explanation

    _, width = _terminal(sys.stdout)
    click.echo(explanation.of(code, width=width), nl=False)
    if json_file is not None:
        _write_explanation(code, json_file)


def _write_explanation(code: tuple[str, ...], json_file: Path) -> None:
    from necropsy import explanation
    from necropsy.rules import crash_rules

    try:
        _write_json(explanation.document(code, crash_rules()), json_file)
    except OSError as error:
        raise NecropsyError(f"cannot write {json_file}: {error.strerror or error}") from error


@cli.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run the TensorFlow crashes of examples/ and show what is found.",
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def demo(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the TensorFlow crashes of examples/ and print a table: what happened, what was found, how long it took."""
    from necropsy import demo as program

    ctx.exit(program.main(list(args)))


# ---------------------------------------------------------------- the end


def main(args: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit status; never raises, never prints a traceback (but NECROPSY_DEBUG=1)."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        status = cli.main(args=words, prog_name="necropsy", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one `except`: whatever it is, one line
        return _tell(error, running=words[:1] == ["run"])
    return status if isinstance(status, int) else 0


def _tell(error: BaseException, *, running: bool = True) -> int:
    """One line for an error, and the exit status that belongs to it."""
    if os.environ.get("NECROPSY_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        usage = f" (see necropsy{' run' if running else ''} --help)" if isinstance(error, click.UsageError) else ""
        _say(f"necropsy: {error.format_message()}{usage}")
        return NecropsyError.exit_code if running else error.exit_code
    if isinstance(error, NecropsyError):
        _say(f"necropsy: {error}")
        if error.hint:
            _say(f"  {error.hint}")
        return error.exit_code
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    _say(f"necropsy: {what} (a defect of necropsy; NECROPSY_DEBUG=1 shows more)")
    return NecropsyError.exit_code


def _say(line: str) -> None:
    """One line on stderr, whatever characters are in it."""
    _print("".join(char if char.isprintable() else ascii(char)[1:-1] for char in line) + "\n")


def _print(text: str) -> None:
    """Text to fd 2 whole, past Python's buffers: the command may have closed it, or nobody may be reading."""
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    while data:
        try:
            data = data[os.write(2, data) :]
        except BlockingIOError:  # noqa: PERF203 - the command left its terminal non-blocking: wait until there is room
            import select

            if not select.select([], [2], [], 5)[1]:
                return
        except OSError:
            return


def _terminal(stream: Any = None) -> tuple[bool, int]:
    """Whether to use colour, and the width in columns: 80 where it is no terminal, never more than 100."""
    handle = 2 if stream is None else stream.fileno()
    if not os.isatty(handle):
        return False, 80
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        columns = os.get_terminal_size(handle).columns
    except OSError:
        columns = 80
    return color, min(max(columns, 40), 100) if columns else 80
