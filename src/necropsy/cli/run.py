"""``necropsy run``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from necropsy.cli import interrupts, start
from necropsy.cli.brevity import BriefCommand
from necropsy.cli.completion import program
from necropsy.cli.confirm import Campaign, first_then_prove, refuse_elsewhere, with_limits
from necropsy.cli.numbers import Seconds
from necropsy.cli.output import COLOR, FAILURE, FORMAT, FULL, writable, writable_folder
from necropsy.cli.start import RunCommand
from necropsy.errors import NecropsyError
from necropsy.reporting import ReportRequest

_LAST = ("-m", "-c")
"""Options of python(1) after which all words belong to the program."""


class _Run(BriefCommand):
    """Everything after the command, or after ``-m`` and its module, belongs to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._close_options(args))

    def _close_options(self, args: list[str]) -> list[str]:
        """Turn ``-m module --option`` into ``-m module -- --option``, and ``-c CODE`` alike, as in python(1)."""
        takes_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in (*param.opts, *param.secondary_opts)
        }
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] != "--":
            word = args[place]
            if word in _LAST and place + 1 < len(args):
                return [*args[: place + 2], "--", *args[place + 2 :]]
            if word.startswith(_LAST) and word not in _LAST:
                return [*args[:place], word[:2], word[2:], "--", *args[place + 1 :]]
            place += 2 if word in takes_value else 1
        return args


def _signals(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> frozenset[str]:
    """``TERM`` and ``SIGTERM`` are the same."""
    if not names:
        return frozenset()
    from necropsy.capture.run_options import STACK_SIGNALS  # it loads the model, which the command line need not

    wanted = frozenset("SIG" + name.upper().removeprefix("SIG") for name in names)
    if unknown := wanted - set(STACK_SIGNALS):
        raise click.BadParameter(f"{min(unknown)} is not one of {', '.join(STACK_SIGNALS)}")
    return wanted


@click.command(
    cls=_Run,
    rare=(
        *("--color", "--log", "--python-locals", "--full-memory", "--no-stacks-at", "--always", "--no-debug"),
        *("--budget", "--runs", "--yes", "--scale", "--vary", "--op-source", "--op-fixed"),
    ),
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    options_metavar="[OPTIONS] [--]",
    short_help="Run a program; if it dies natively, say what killed it.",
)
@click.option(
    "-m",
    "module",
    metavar="MODULE",
    help="Run a module as `python -m MODULE` does; everything after MODULE is passed to it.",
)
@click.option("-c", "code", metavar="CODE", help="Run Python code as `python -c CODE` does.")
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the JSON document, after healthy runs too.",
)
@FORMAT
@click.option(
    "-o",
    "out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the report to FILE, in the form that --format says, instead of stderr.",
)
@FULL
@COLOR
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep every run in its own folder below DIR: report.json and report.txt.",
)
@click.option("--quiet", is_flag=True, help="Print no report; --json and --output are still written.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="Stop the program and its children after this time, with TERM and then KILL (Windows: at once); "
    "the exit code is then 124.",
)
@click.option(
    "--log",
    type=click.Choice(["auto", "probe", "tap", "pty", "pipe", "off"]),
    default="auto",
    show_default=True,
    help=(
        "How the end of stderr is read. auto: only where that changes nothing for the program; tap, pty, pipe "
        "(Windows): always, at a cost; probe: by the kernel, which needs root; off: not at all."
    ),
)
@click.option(
    "--python-locals", is_flag=True, help="Show the local variables of the Python frames. They may hold secrets."
)
@click.option(
    "--full-memory", is_flag=True, help="Keep all memory of a dead process with its report; it may hold secrets."
)
@click.option(
    "--no-stacks-at",
    metavar="SIGNAL",
    multiple=True,
    callback=_signals,
    help="Do not read the threads when this signal (TERM, INT, QUIT or XCPU) comes from outside. May be repeated.",
)
@click.option(
    "--guard",
    is_flag=True,
    help="Linux: an access beyond a buffer crashes where it is made.",
)
@click.option("--always", is_flag=True, help="Report on healthy runs too: how much of its stack each thread used.")
@click.option(
    "--confirm", is_flag=True, help="If it dies, run it again with one change at a time, to prove the cause and a fix."
)
@click.option(
    "--no-debug",
    is_flag=True,
    help="Windows: start the program without a debugger; only the exit code and the log are available then.",
)
@FAILURE
@with_limits
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...", shell_complete=program)
@click.pass_context
def run(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    module: str | None,
    code: str | None,
    json_file: Path | None,
    form: str,
    out: Path | None,
    full: bool,
    output: Path | None,
    quiet: bool,
    timeout: float | None,
    log: str,
    python_locals: bool,
    full_memory: bool,
    no_stacks_at: frozenset[str],
    guard: bool,
    always: bool,
    confirm: bool,
    no_debug: bool,
    failure: Path | None,
    campaign: Campaign,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as it would run without necropsy: same input, output, terminal and signals, same exit status.

    A healthy run prints nothing. If the program dies natively (a signal, abort(), a failed CHECK), a report on stderr
    says what killed it, and is kept for `necropsy show`. Exit codes 125
    (necropsy failed), 126 (COMMAND is not executable) and 127 (not found) come from necropsy.

    With -m or -c, the interpreter is the `python` of your PATH, or else the one that runs necropsy.
    """
    if module is not None:
        command = start.of_module(module, command)
    elif code is not None:
        command = start.of_code(code, command)
    if not command:
        raise click.UsageError("which command? For example: necropsy run python train.py", ctx)
    if sys.platform not in {"linux", "win32"}:
        raise NecropsyError(f"`necropsy run` does not work on {sys.platform} yet; `necropsy explain CODE` does")
    if no_debug and sys.platform != "win32":
        raise click.UsageError("--no-debug is for Windows: elsewhere no debugger is needed", ctx)
    if log in {"probe", "tap", "pty"} and sys.platform != "linux":
        raise click.UsageError(f"--log {log} is for Linux: on Windows there is --log pipe, or 2> log.txt", ctx)
    if log == "pipe" and sys.platform != "win32":
        raise click.UsageError("--log pipe is for Windows: on Linux there is --log pty", ctx)

    for path, option in ((json_file, "--json"), (out, "-o")):
        if path is not None:
            writable(path, option)
    if output is not None:
        writable_folder(output)
    if guard and sys.platform != "linux":
        raise click.UsageError("--guard is for Linux", ctx)
    if guard and confirm:
        raise click.UsageError("--guard and --confirm do not go together: the runs of --confirm are not guarded", ctx)
    if confirm:
        refuse_elsewhere()
        interrupts.raise_an_exception()
        words = ["--log", log, *(["--timeout", str(timeout)] if timeout else []), *(["--quiet"] if quiet else [])]
        words += ["--python-locals"] if python_locals else []
        words += ["--full"] if full else []
        words += [word for name in sorted(no_stacks_at) for word in ("--no-stacks-at", name)]
        wanted = campaign.options(timeout)
        ctx.exit(first_then_prove(words, command, wanted, json_file=json_file, form=form, out=out, full=full))
    if campaign.is_given:
        raise click.UsageError(
            "--scale, --vary, --op-source, --op-fixed, --budget, --runs and --yes are for --confirm", ctx
        )

    given = RunCommand(
        ReportRequest(
            command=command,
            json_file=json_file,
            form=form,
            out=out,
            full=full,
            output=output,
            quiet=quiet,
            always=always,
            timeout=timeout,
        ),
        log=log,
        python_locals=python_locals,
        full_memory=full_memory,
        no_stacks_at=no_stacks_at,
        debug=not no_debug,
        guard=guard,
    )
    ctx.exit(start.run(given, failure))
