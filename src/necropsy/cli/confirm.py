"""``necropsy confirm``, and the second half of ``necropsy run --confirm``."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from necropsy.cli.brevity import BriefCommand
from necropsy.cli.completion import reports
from necropsy.cli.numbers import Seconds, Whole
from necropsy.cli.output import deliver, with_report
from necropsy.console import say, shape, write
from necropsy.errors import NecropsyError

if TYPE_CHECKING:
    from necropsy.model import Document
    from necropsy.proving import Options

LIMITS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--budget",
        metavar="SECONDS",
        type=Seconds(min=0, min_open=True),
        help="Stop experimenting after this time; what is not decided by then is inconclusive.",
    ),
    click.option("--runs", metavar="N", type=Whole(min=1), help="Maximum number of runs."),
    click.option("--yes", is_flag=True, help="Do not ask before the program is run again."),
    click.option(
        "--scale",
        multiple=True,
        metavar="NAME=LO..HI",
        help="Find the smallest value of {NAME} in the command that makes it crash.",
    ),
    click.option(
        "--op-source",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The C++ source of the op: it is built again at each level of optimisation, and with checks.",
    ),
    click.option(
        "--op-fixed",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Your corrected source: check that it survives every build that makes --op-source crash.",
    ),
    click.option(
        "--vary",
        multiple=True,
        metavar="NAME=A,B,...",
        help="Try each of these values for {NAME} in the command and report which ones crash; "
        "ENV:NAME=... is a variable.",
    ),
)


@dataclasses.dataclass(frozen=True)
class Campaign:
    """What was given of ``LIMITS``."""

    budget: float | None
    runs: int | None
    yes: bool
    scale: tuple[str, ...]
    vary: tuple[str, ...]
    op_source: Path | None
    op_fixed: Path | None

    @property
    def is_given(self) -> bool:
        """At least one of them was."""
        return any(vars(self).values())

    def options(self, timeout: float | None) -> Options:
        """The same for the campaign; raises ``OptionError`` if ``scale`` or ``vary`` is malformed."""
        from necropsy import proving
        from necropsy.confirm import parameter_sweep as varying
        from necropsy.confirm.campaign import Limits
        from necropsy.errors import OptionError

        if self.op_fixed is not None and self.op_source is None:
            raise OptionError("--op-fixed is compared with the faulty source: give that one with --op-source")

        return proving.Options(
            limits=Limits(budget_s=self.budget, runs=self.runs),
            yes=self.yes,
            timeout_s=timeout,
            op_source=self.op_source,
            op_fixed=self.op_fixed,
            studies=(*map(varying.scale, self.scale), *map(varying.vary, self.vary)),
        )


def with_limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how far a campaign goes: it gets them as ``campaign``."""

    @functools.wraps(command)
    def taking(*args: Any, **given: Any) -> Any:
        campaign = Campaign(**{one.name: given.pop(one.name) for one in dataclasses.fields(Campaign)})
        return command(*args, campaign=campaign, **given)

    wrapped: Callable[..., Any] = taking
    for option in reversed(LIMITS):
        wrapped = option(wrapped)
    return wrapped


def refuse_elsewhere() -> None:
    """Raise ``NecropsyError`` outside Linux, which alone has the stack limits, preloading and glibc settings needed."""
    if sys.platform != "linux":
        name = {"win32": "Windows", "darwin": "macOS"}.get(sys.platform, sys.platform)
        raise NecropsyError(f"a cause is proved by experiments on Linux only so far, not on {name}")


@click.command(
    cls=BriefCommand,
    rare=("--color", "--op-fixed", "--vary", "--runs"),
    short_help="Prove the cause of a kept report: run the program again, with one change at a time.",
)
@with_limits
@with_report
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="Stop each run after this time.  [default: four times as long as the run that died, and 30 s]",
)
@click.argument("identity", metavar="[ID]", required=False, shell_complete=reports)
@click.pass_context
def confirm(  # noqa: PLR0917 - click passes them by name
    ctx: click.Context,
    identity: str | None,
    form: str,
    out: Path | None,
    campaign: Campaign,
    timeout: float | None,
    *,
    full: bool,
) -> None:
    """Run the program of a report again (the newest, or the one whose ID starts with ID) and prove the cause.

    Each rule brings experiments: a larger stack, another allocator, one thread, no GPU. The program is run unchanged
    until it has died three times at once, or four times in all, and then under one change after the other. The report
    then says what was predicted, what happened, and what that proves; a fix under which the program lived is verified.
    A campaign that was stopped goes on where it was. It runs where you stand now, with the variables that are set now.
    """
    refuse_elsewhere()
    from necropsy import proving

    if identity is not None and identity.endswith(".py") and Path(identity).is_file():
        raise click.UsageError(f"it takes a report; to run a script: necropsy run --confirm python {identity}", ctx)
    document = proving.of_kept(identity)
    wanted = campaign.options(timeout)
    ctx.exit(0 if proved(document, wanted, form=form, out=out, full=full) else 1)


def proved(
    document: Document,
    wanted: Options,
    json_file: Path | None = None,
    form: str = "text",
    out: Path | None = None,
    *,
    full: bool = False,
) -> bool:
    """Run the experiments, show the result on stderr or in ``out``, and keep it; False if nothing was run."""
    from necropsy import proving

    found = proving.confirmed(document, wanted, _ask, progress())
    if found is None:
        return False
    write("\r\x1b[K" if os.isatty(2) else "")
    from necropsy import store
    from necropsy.reports import rendered
    from necropsy.reports.brief import AGAIN
    from necropsy.rules import page

    document, is_kept, problem = proving.kept(found, json_file)
    again = f"necropsy show {store.short(document.id)} --full" if is_kept else AGAIN

    def render(color: bool, width: int) -> str:
        return rendered(document, form, color=color, width=width, full=full, again=again, pages=page)

    if out is None:
        write(render(*shape()))
    else:
        deliver(render, out)
    if problem:
        say(problem)
    return True


def first_then_prove(
    words: Sequence[str],
    command: Sequence[str],
    wanted: Options,
    *,
    json_file: Path | None = None,
    form: str = "text",
    out: Path | None = None,
    full: bool = False,
) -> int:
    """``run --confirm``: the run itself, then the experiments, and the end that the run had."""
    from necropsy import proving
    from necropsy.reporting import write_json

    wanted = dataclasses.replace(wanted, command=tuple(command))
    status, document, wanted = proving.first_death(words, command, wanted)
    if document is not None and json_file is not None:
        write_json(document, json_file)
    if document is not None and any(one.verdict is not None for one in document.reports):
        try:
            proved(document, wanted, json_file, form, out, full=full)
        except NecropsyError as error:
            say(f"necropsy: {error}")
    if status < 0:
        if -status != signal.SIGKILL:  # nobody can take that one, or change what it does
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _ask(intention: str) -> bool:
    write(intention + "\n")
    if not (sys.stdin is not None and sys.stdin.isatty() and os.isatty(2)):
        say("necropsy: not a terminal, so nothing was run; pass --yes to run without asking")
        return False
    return click.confirm("Run it?", default=False, err=True)


def progress() -> Callable[[str], None]:
    """Where to show how far something is: one line that is written over, on a terminal."""
    if not os.isatty(2) or os.environ.get("CI") or os.environ.get("NO_COLOR"):
        return lambda _text: None
    from necropsy.reports.terminal import clean

    return lambda text: write(f"\r\x1b[K{clean(text)}")
