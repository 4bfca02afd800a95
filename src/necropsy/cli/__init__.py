"""The command line: each subcommand composes verbs, and what goes wrong is told in one line by the one ``except``.

``necropsy run`` writes nothing to stdout, ever: it is the program's own. Everything goes to stderr, once the program
has ended. What is slow to import is imported where it is used: of ``run``'s start every millisecond counts, so that
its plain forms are read by ``start`` and all else by click.
"""

from __future__ import annotations

import os
import sys

from necropsy.cli import interrupts

if interrupts.is_own_process():
    interrupts.end_at_once()
if sys.platform == "linux":
    from necropsy import launcher

    # As soon as possible: from here on Ctrl-C takes effect.
    if (record := launcher.take()) is not None and record.interrupts_blocked:
        interrupts.let_through()

TYPE_CHECKING = False  # as in ``typing``, which takes longer to load than all that is loaded here
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit status; never raises, never prints a traceback (but NECROPSY_DEBUG=1)."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        return _told(words)
    except MemoryError:  # not enough for the module that reports errors either
        os.write(2, b"necropsy: not enough memory\n")
        return 125


def _told(words: list[str]) -> int:
    """Whatever goes wrong becomes one line, except a ``MemoryError``, which is raised if not even that is possible."""
    try:
        status = _main(words)
        if "necropsy.cli.commands" in sys.modules:
            from necropsy.cli.messages import written

            written()
    except MemoryError:
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one `except`: whatever it is, one line
        from necropsy.cli.messages import tell

        return tell(error, command=_subcommand(words))
    return status


def _main(words: list[str]) -> int:
    if words[:1] == ["run"]:
        from necropsy.cli import start

        wanted = start.understood(words[1:])
        if wanted is not None:
            return start.run(wanted)
    if words[:1] == ["doctor"] and interrupts.is_own_process():
        from necropsy.doctor import surroundings

        surroundings.start_again(words, launcher.for_another() if sys.platform == "linux" else {})
    from necropsy.cli.commands import cli

    if words[:1] != ["run"]:
        interrupts.raise_an_exception()
    words = _meant(words)
    status = cli.main(args=words, prog_name="necropsy", standalone_mode=False)
    return status if isinstance(status, int) else 0


def _meant(words: list[str]) -> list[str]:
    """Interpret a first word that is not a command, or raise ``click.UsageError`` with the command to type."""
    from necropsy.cli.commands import cli

    if not words or words[0] in cli.commands or any(words[0] in param.opts for param in cli.params):
        return words
    from necropsy.cli import suggestions

    if words[0].startswith("-") and not words[0].lstrip("-").isdecimal():
        import click

        line = suggestions.misplaced(words, cli.commands)
        if line is not None and words[0] not in {"-h", "--help"}:
            raise click.UsageError(line)
        return words
    return suggestions.instead(words, cli.commands)


def _subcommand(words: list[str]) -> str | None:
    if words[:1] == ["run"]:
        return "run"
    from necropsy.cli.commands import cli

    return next((word for word in words[:1] if word in cli.commands), None)
