"""The command line: each subcommand composes verbs, and what goes wrong is told in one line by the one ``except``.

``necropsy run`` writes nothing to stdout, ever: it is the program's own. Everything goes to stderr, once the program
has ended. What is slow to import is imported where it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from necropsy import __version__
from necropsy.cli import confirm, doctor, explain, reports, run
from necropsy.cli.telling import tell, written
from necropsy.console import write


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(__version__, "-V", "--version", prog_name="necropsy", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Finds out what killed a Python process, shows the evidence, and proves it.

    \b
      necropsy run python train.py     run a program; if it dies, say what killed it
      necropsy show                    the newest report again; also as HTML or Markdown
      necropsy explain 139 train.log   what an exit code, a log or both say of a death
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    if ctx.invoked_subcommand is None:
        write(ctx.get_help() + "\n")
        ctx.exit(2)


for _command in (
    run.run,
    confirm.confirm,
    reports.list_,
    reports.show,
    reports.open_,
    reports.attach,
    explain.explain,
    explain.demo,
    doctor.doctor,
):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit status; never raises, never prints a traceback (but NECROPSY_DEBUG=1)."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        status = cli.main(args=words, prog_name="necropsy", standalone_mode=False)
        written()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one `except`: whatever it is, one line
        return tell(error, command=next((word for word in words[:1] if word in cli.commands), None))
    return status if isinstance(status, int) else 0
