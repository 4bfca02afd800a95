"""The subcommands, as click knows them."""

from __future__ import annotations

import click

from necropsy import __version__
from necropsy.cli import (
    check,
    completion,
    confirm,
    doctor,
    explain,
    fuzz,
    jupyter,
    kept,
    profile,
    reduce,
    reports,
    run,
    send,
    triage,
)
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
      necropsy run python train.py    run a program; if it dies, say why
      necropsy show                   the newest report; also as HTML or Markdown
      necropsy explain 139 train.log  what an exit code and a log say of a death
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    if ctx.invoked_subcommand is None:
        write(ctx.get_help() + "\n")
        ctx.exit(2)


for _command in (
    run.run,
    profile.profile,
    confirm.confirm,
    reduce.reduce,
    kept.list_,
    reports.show,
    reports.open_,
    reports.attach,
    send.send,
    reports.enable,
    explain.explain,
    doctor.doctor,
    check.check,
    fuzz.fuzz,
    triage.triage,
    jupyter.jupyter,
    kept.rules,
    kept.prune,
    completion.completion,
):
    cli.add_command(_command)
