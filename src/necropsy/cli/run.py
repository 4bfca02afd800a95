"""``necropsy run``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from necropsy.cli.confirm import first_then_prove, refuse_elsewhere, with_limits
from necropsy.cli.confirm import options as options_of
from necropsy.cli.telling import Seconds, tell
from necropsy.errors import NecropsyError

if TYPE_CHECKING:
    from necropsy.document import Ended


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
            if word == "-m" and place + 1 < len(args):
                return [*args[: place + 2], "--", *args[place + 2 :]]
            if word.startswith("-m") and word != "-m":
                return [*args[:place], "-m", word[2:], "--", *args[place + 1 :]]
            place += 2 if word in takes_value else 1
        return args


@click.command(
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
    type=Seconds(min=0, min_open=True),
    help="Stop the program and its children after this time, with TERM and then KILL (Windows: at once); "
    "the exit code is then 124.",
)
@click.option(
    "--log",
    type=click.Choice(["auto", "probe", "tap", "pty", "pipe", "off"]),
    default="auto",
    show_default=True,
    help="How the end of stderr is read. auto: where that changes nothing for the program; tap, pty, pipe "
    "(Windows): always, at a price; probe: by the kernel, which needs root; off: not at all.",
)
@click.option(
    "--python-locals", is_flag=True, help="Show the local variables of the Python frames. They may hold secrets."
)
@click.option(
    "--full-memory", is_flag=True, help="Keep all memory of a dead process with its report; it may hold secrets."
)
@click.option("--always", is_flag=True, help="Report on healthy runs too: how much of its stack each thread used.")
@click.option(
    "--confirm", is_flag=True, help="If it dies, run it again with one change at a time, to prove the cause and a fix."
)
@click.option(
    "--no-debug",
    is_flag=True,
    help="Windows: start the program without a debugger; of its death only the exit code and the log are seen then.",
)
@with_limits
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
    confirm: bool,
    no_debug: bool,
    budget: float | None,
    runs: int | None,
    yes: bool,
    scale: tuple[str, ...],
    vary: tuple[str, ...],
    op_source: Path | None,
    op_fixed: Path | None,
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
    if sys.platform not in {"linux", "win32"}:
        raise NecropsyError(f"`necropsy run` does not work on {sys.platform} yet; `necropsy explain CODE` does")
    if no_debug and sys.platform != "win32":
        raise click.UsageError("--no-debug is for Windows: elsewhere no debugger is needed", ctx)
    if log in {"probe", "tap", "pty"} and sys.platform != "linux":
        raise click.UsageError(f"--log {log} is for Linux: on Windows there is --log pipe, or 2> log.txt", ctx)
    if log == "pipe" and sys.platform != "win32":
        raise click.UsageError("--log pipe is for Windows: on Linux there is --log pty", ctx)

    if confirm:
        refuse_elsewhere()
        words = ["--log", log, *(["--timeout", str(timeout)] if timeout else []), *(["--quiet"] if quiet else [])]
        words += ["--python-locals"] if python_locals else []
        wanted = options_of(
            budget=budget,
            runs=runs,
            yes=yes,
            scale=scale,
            vary=vary,
            timeout=timeout,
            op_source=op_source,
            op_fixed=op_fixed,
        )
        ctx.exit(first_then_prove(words, command, wanted, json_file))
    if scale or vary or budget or runs or yes or op_source or op_fixed:
        raise click.UsageError(
            "--scale, --vary, --op-source, --op-fixed, --budget, --runs and --yes are for --confirm", ctx
        )

    if sys.platform == "linux":
        from necropsy.capture.linux import nested

        if not (json_file or output or quiet or timeout or always) and nested.is_watched():
            nested.step_aside(command)

    from necropsy import store
    from necropsy.capture.supervision import RunOptions
    from necropsy.outcome import Outcome, descriptor_of

    told = Outcome(json_file=json_file, output=output, quiet=quiet, always=always, timeout=timeout)
    options = RunOptions(
        timeout_s=timeout,
        log=log,
        python_locals=python_locals,
        always=always,
        keep=tuple(filter(None, [descriptor_of(json_file)])),
        # Set by the keeper of an experiment's run, and nothing that the command should see.
        tied=os.environ.pop("NECROPSY_TIED", None) is not None,
        core="off" if store.limit() == 0 else "full" if full_memory else "small",
        loading=Outcome.loading,
    )
    on_end = _guarded(lambda ended: told.on_end(ended, command))
    if sys.platform == "win32":
        from necropsy.capture.windows import launch as on_windows

        ctx.exit(on_windows.run(command, options, on_end, debug=not no_debug))
    from necropsy.capture.linux import launch

    ctx.exit(launch.run(command, options, on_end))


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
            tell(error)

    return guarded
