"""Shell completion, in addition to files, and ``necropsy completion``, which prints the script for the shell."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

_MANY = 200


def program(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The programs of PATH for the first word, and files for all."""
    if ctx.params.get("command") or "/" in incomplete or not incomplete:
        return [CompletionItem(incomplete, type="file")]
    found: set[str] = set()
    for folder in os.environ.get("PATH", "").split(os.pathsep)[:50]:
        with suppress(OSError):
            found.update(path.name for path in Path(folder or ".").iterdir() if path.name.startswith(incomplete))
    programs = [name for name in sorted(found)[:_MANY] if shutil.which(name)]
    return [*map(CompletionItem, programs), CompletionItem(incomplete, type="file")]


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files."""
    return [CompletionItem(incomplete, type="file")]


def reports(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of kept reports, newest first, with the time."""
    from necropsy import store

    with suppress(Exception):  # an error here would be printed into the line that is being typed
        place = store.folder()
        paths = store.kept(place)[:_MANY] if place is not None else []
        identities = map(store.identity_of, paths)
        return [
            CompletionItem(store.short(identity), help=identity.partition("-")[0])
            for identity in identities
            if store.short(identity).startswith(incomplete)
        ]
    return []


def file_or_report(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Reports, and files."""
    return [*reports(ctx, param, incomplete), CompletionItem(incomplete, type="file")]


def rule_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of rules, with their titles."""
    from necropsy.rules import crash_rules, profile_rules

    known = sorted(
        [(rule.name, rule.title) for rule in crash_rules()] + [(rule.name, rule.title) for rule in profile_rules()]
    )
    return [CompletionItem(name, help=title) for name, title in known if name.startswith(incomplete)]


def file_or_rule(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules once a letter is typed, and files."""
    named = rule_names(ctx, param, incomplete) if incomplete else []
    return [*named, CompletionItem(incomplete, type="file")]


def process(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The processes of this user, with their commands."""
    found = []
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: -int(path.name))[:2000]:
        with suppress(OSError):
            mine = path.stat().st_uid == os.getuid() and path.name.startswith(incomplete)
            words = (path / "cmdline").read_bytes().split(b"\0") if mine else []
            if words and words[0]:
                found.append(CompletionItem(path.name, help=b" ".join(words)[:60].decode("utf-8", "replace")))
    return found[:_MANY]


@click.command(short_help="Print the script that completes commands in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, files, reports, rules and processes.

    \b
      eval "$(necropsy completion bash)"            in ~/.bashrc
      eval "$(necropsy completion zsh)"             in ~/.zshrc
      necropsy completion fish | source             in ~/.config/fish/config.fish
    """  # noqa: D301 - the backslash is click's mark for a paragraph that keeps its lines
    script = get_completion_class(shell)
    if script is None:  # click knows these three
        raise click.UsageError(f"no completion for {shell}")
    sys.stdout.write(script(ctx.find_root().command, {}, "necropsy", "_NECROPSY_COMPLETE").source() + "\n")
