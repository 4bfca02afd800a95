"""The command line: each subcommand composes verbs, and what goes wrong is told in one line by the one ``except``.

``necropsy run`` writes nothing to stdout, ever: it is the program's own. Everything goes to stderr, once the program
has ended. What is slow to import is imported where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy import __version__
from necropsy.console import say, shape
from necropsy.errors import NecropsyError, UnknownCodeError

if TYPE_CHECKING:
    from necropsy.document import Ended
    from necropsy.explanation import Explanation
    from necropsy.model import Crash
    from necropsy.rule import Rule

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
      necropsy show                    the newest report again; also as HTML or Markdown
      necropsy explain 139 train.log   what an exit code, a log or both say of a death
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
@click.option(
    "--full-memory", is_flag=True, help="Keep all memory of a dead process with its report; it may hold secrets."
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
    full_memory: bool,
    always: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as it would run without necropsy: same input, output, terminal and signals, same exit status.

    A healthy run prints nothing. If the program dies natively (a signal, abort(), a failed CHECK), a report on stderr
    says what killed it, and is kept for `necropsy show`. Failures of necropsy itself end with 125; 126: COMMAND cannot
    be executed; 127: not found.

    With -m, the interpreter is the `python` of your PATH, or else the one that runs necropsy.
    """
    if module is not None:
        command = (_python(), "-m", module, *command)
    if not command:
        raise click.UsageError("which command? For example: necropsy run python train.py", ctx)
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy run` does not work on {sys.platform} yet; `necropsy explain CODE` does")

    from necropsy.capture.linux import nested

    if not (json_file or output or quiet or timeout or always) and nested.is_watched():
        nested.step_aside(command)

    from necropsy import store
    from necropsy.capture.linux import launch
    from necropsy.outcome import Outcome, descriptor_of

    options = launch.RunOptions(
        timeout_s=timeout,
        log=log,
        python_locals=python_locals,
        always=always,
        keep=tuple(filter(None, [descriptor_of(json_file)])),
        core="off" if store.limit() == 0 else "full" if full_memory else "small",
    )
    told = Outcome(json_file=json_file, output=output, quiet=quiet, always=always, timeout=timeout)
    ctx.exit(launch.run(command, options, _guarded(lambda ended: told.on_end(ended, command))))


def _python() -> str:
    """The `python` that the user would get by typing it; inside of pipx or uvx that is not the one that runs us."""
    import shutil

    return shutil.which("python") or sys.executable


def _guarded(step: Callable[[Ended], None]) -> Callable[[Ended], None]:
    """The same step, which tells in one line what goes wrong in it: the command's end must not depend on it."""

    def guarded(ended: Ended) -> None:
        try:
            step(ended)
        except Exception as error:  # noqa: BLE001 - in the tracer, where main's own `except` cannot reach
            _tell(error)

    return guarded


# ---------------------------------------------------------------- list, show, open, attach

_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown", "html"]),
    default="text",
    show_default=True,
    help="markdown: to paste into an issue; html: one file that needs nothing else.",
)


@cli.command("list", short_help="The reports that are kept, newest first.")
def list_() -> None:
    """Show the reports that are kept, newest first: one of each run in which something died.

    They lie below NECROPSY_OUTPUT, or else in the system's folder for a program's state
    (~/.local/state/necropsy/reports); NECROPSY_KEEP of them, or else 50.
    """
    from necropsy import viewing
    from necropsy.console import whole_width

    color, _ = shape(1)
    _print(viewing.table(width=whole_width(1), color=color))


@cli.command(short_help="Show a kept report again: as text, JSON, Markdown or HTML.")
@_FORMAT
@click.option(
    "--core",
    "core_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the small core that was kept with it, for gdb, lldb or drgn, and show nothing.",
)
@click.option("--pid", type=int, help="The process whose core is meant, where there are several.")
@click.argument("identity", metavar="[ID]", required=False)
def show(identity: str | None, form: str, core_file: Path | None, pid: int | None) -> None:
    """Show the newest report, or the one whose ID (see `necropsy list`) begins like this.

    \b
      necropsy show
      necropsy show 9f86 --format html > report.html
      necropsy show 9f86 --core small.core && gdb python small.core
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import capsule, store, viewing

    path = store.find(viewing.place(), identity)
    if core_file is not None:
        say(viewing.save_core(path, core_file, pid))
        return
    if pid is not None:
        raise click.UsageError("--pid says which core is meant: give --core FILE too")
    color, width = shape(1)
    _print(viewing.rendered(capsule.read(path), form, color=color, width=width))


@cli.command("open", short_help="Show what is in a core file, or in a report's file.")
@_FORMAT
@click.argument("file", metavar="[FILE]", type=click.Path(path_type=Path), required=False)
def open_(file: Path | None, form: str) -> None:
    """Diagnose a core file of any program, as the kernel, systemd-coredump or apport left it, compressed or not.

    A report's file (JSON, or .necropsy from the reports folder) is shown as it is. Without FILE, the newest core is
    opened: of ./core*, of systemd-coredump's or of apport's.
    """
    from necropsy import viewing

    if file is None:
        file = viewing.newest_core()
        say(f"necropsy: the newest core is {file}")
    color, width = shape(1)
    _print(viewing.rendered(viewing.opened(file), form, color=color, width=width))


@cli.command(short_help="Show where a running process stands: all its threads.")
@_FORMAT
@click.option(
    "--python-locals", is_flag=True, help="Show the local variables of the Python frames. They may hold secrets."
)
@click.option(
    "--core", "core_file", metavar="FILE", type=click.Path(path_type=Path), help="Write a small core of it as well."
)
@click.argument("pid", type=click.IntRange(min=1), metavar="PID")
def attach(pid: int, form: str, python_locals: bool, core_file: Path | None) -> None:
    """Stop the process PID for a moment, read all its threads, and let it go on: for one that hangs or is slow."""
    if sys.platform != "linux":
        raise NecropsyError(f"`necropsy attach` does not work on {sys.platform} yet")
    from necropsy import viewing

    document = viewing.attached(pid, python_locals=python_locals, core_file=core_file)
    color, width = shape(1)
    _print(viewing.rendered(document, form, color=color, width=width))


def _print(text: str) -> None:
    try:
        click.echo(text.encode("utf-8", "backslashreplace"), nl=False)
    except BrokenPipeError:
        raise  # click ends silently
    except OSError as error:
        raise NecropsyError(f"cannot write to stdout: {error.strerror or error}") from error


# ---------------------------------------------------------------- explain, demo


@cli.command(
    context_settings={"ignore_unknown_options": True},
    short_help="What an exit code, a log or a debugger's output says of a death.",
)
@_FORMAT
@click.option("--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the JSON document.")
@click.argument("inputs", nargs=-1, type=click.UNPROCESSED, metavar="[CODE | TEXT | FILE | -]...")
@click.pass_context
def explain(ctx: click.Context, inputs: tuple[str, ...], form: str, json_file: Path | None) -> None:
    """Explain whatever there is of one death: an exit code in any spelling, a signal, a log, a debugger's output.

    What is given together is taken as evidence of one death. `-` is standard input. The name of a verdict or of an
    error (stack-smash, CUDNN_STATUS_NOT_INITIALIZED) shows its page.

    \b
      necropsy explain 0xC0000409
      necropsy explain 139 train.log
      kubectl logs my-pod --previous | necropsy explain - 137
      necropsy explain "segfault at 0 ip 00007f3a sp 00007ffc error 4 in libfoo.so[7f3a+1000]"
      necropsy explain stack-smash
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    from necropsy import explanation, viewing
    from necropsy.console import watched

    asked = bool(inputs)
    if not asked:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("what is to be explained? For example: necropsy explain 139", ctx)
        inputs = ("-",)
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    explained = explanation.explain(inputs, _rules, stdin=stdin, watch=watched)
    if not asked and not explained.inputs.digests[0].bytes:
        raise click.UsageError("what is to be explained? For example: necropsy explain 139", ctx)
    color, width = shape(1)
    if form != "text" and explained.document is not None:
        _print(viewing.rendered(explained.document, form, color=color, width=width))
    else:
        _print(explained.text(color=color, width=width))
    if json_file is not None:
        _write_explanation(explained, json_file)


def _rules() -> tuple[Rule[Crash], ...]:
    from necropsy.rules import crash_rules

    return crash_rules()


def _write_explanation(explained: Explanation, json_file: Path) -> None:
    from necropsy.outcome import write_json

    if explained.document is None:
        raise UnknownCodeError("a verdict's page has no JSON form; give an exit code, a text or a file")
    try:
        write_json(explained.document, json_file)
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
