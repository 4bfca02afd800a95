"""Commands with many options: ``--help`` fits a screen and leaves out the rare ones, ``--help-all`` shows them all."""

from __future__ import annotations

from typing import Any

import click

ALL = "necropsy.help_all"
"""Key of ``Context.meta``, set if help is to show every option."""


class BriefCommand(click.Command):
    """``rare``: the options, by the name that they are typed with, that ``--help`` leaves out."""

    def __init__(self, *args: Any, rare: tuple[str, ...] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self.rare = frozenset(rare)
        spelled = {name for param in self.params for name in param.opts}
        if unknown := self.rare - spelled:
            raise ValueError(f"{self.name} has no option {min(unknown)}")
        self.params.append(_help_all())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; click asks for this."""
        rows = [
            row
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            if ctx.meta.get(ALL) or not self.rare.intersection(param.opts)
            if (row := param.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(rows)


def _help_all() -> click.Option:
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show all options and exit; some are rarely needed.",
    )


def _show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()
