"""The command line of the demo: run the examples, show what happened and what was found."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import click
import msgspec

from demo import result, table
from demo.examples import FOLDER, Catalogue, Example, catalogue, chosen
from demo.proof import ExampleProver
from demo.result import DemoResult
from demo.workshop import Workshop
from necropsy.cli.messages import tell
from necropsy.errors import NecropsyError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--python",
    metavar="PYTHON",
    default=sys.executable,
    help="The interpreter that has TensorFlow.  [default: the one that runs this]",
)
@click.option(
    "--confirm",
    is_flag=True,
    help=(
        "Test the cause of each death: run it again with one change at a time, until the cause is confirmed and a "
        "fix is verified. Compare the result with the catalogue. This takes about ten minutes."
    ),
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="With --confirm: how many to run in parallel.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.File("wb", lazy=False),
    help="Write the result as JSON to FILE too.",
)
@click.option("--full", is_flag=True, help="With the full report of each example.")
@click.option("--list", "only_list", is_flag=True, help="List the examples and exit.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def demo(
    names: tuple[str, ...],
    python: str,
    json_file: IO[bytes] | None,
    jobs: int,
    *,
    confirm: bool,
    full: bool,
    only_list: bool,
) -> int:
    """Run the TensorFlow programs of examples/, or those that are named, and print a table.

    It shows what happened, what was found, and how long the diagnosis took: from the fatal signal to the finished
    report. It ends with 1 where anything is not as examples/catalogue.toml says.
    """
    known = catalogue(FOLDER)
    picked = chosen(known.example, names)
    if confirm:
        picked = table.that_die(picked, named=bool(names))
    if only_list:
        say([f"{example.name:<23} {example.about}" for example in picked])
        return 0
    # Each example runs in a folder of its own, where a relative path would lead nowhere; a link stays a link (venv).
    workshop = Workshop(FOLDER, str(Path(python).absolute()) if os.sep in python else python)
    progress("asking TensorFlow for its compile flags")
    unbuilt = workshop.build({one.build: known.build[one.build] for one in picked if one.build}, progress)
    whole: object
    if confirm:
        prover = ExampleProver(workshop, known.build, min(jobs, os.cpu_count() or 1))
        whole = proofs = table.proved(prover, picked, unbuilt, say, progress, full=full)
        is_right = proofs.is_right
    else:
        found = list(_run(workshop, known, picked, unbuilt, full=full))
        whole = result.counted(found)
        is_right = not any(one.faults for one in found)
    if json_file is not None:
        json_file.write(msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
    return 0 if is_right else 1


def _run(
    workshop: Workshop,
    known: Catalogue,
    examples: Sequence[Example],
    unbuilt: Mapping[str, NecropsyError],
    *,
    full: bool,
) -> Iterator[DemoResult]:
    """Run the examples one after the other, and show each as it ends."""
    width = max(39, min(shutil.get_terminal_size().columns, 120) - 41)
    head = result.COLUMNS.format("example", "ended", "found, and where", "report", width=width)
    found: list[DemoResult] = []
    for number, example in enumerate(examples, 1):
        progress(f"running {number} of {len(examples)}: {example.name}, {example.about}")
        if example.build is not None and example.build in unbuilt:
            why = str(unbuilt[example.build])
            lines = [f"{example.name:<23} skipped  {why}"]
            found.append(DemoResult(example=example.name, about=example.about, skipped=why))
        else:
            run = workshop.run(example, known.build)
            found.append(result.result_of(example, run, FOLDER))
            lines = [*result.lines(example, run, width), *(f"  NOT RIGHT: {fault}" for fault in found[-1].faults)]
            lines += result.report_lines(run) if full else []
        progress("")
        say(([head, "-" * len(head)] if number == 1 else []) + lines)
        yield found[-1]
    whole = result.counted(found)
    skipped = f", {whole.skipped} skipped" if whole.skipped else ""
    say(["", f"{whole.right} of {len(found)} as they should be{skipped}."])
    say([f"report: seconds from the fatal signal to the finished report. All reports are in {workshop.runs}"])


def say(lines: Sequence[str]) -> None:
    """Print them now."""
    print("\n".join(lines), flush=True)


def progress(said: str) -> None:
    """Show on a terminal's last line what is being done."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{said}", end="", file=sys.stderr, flush=True)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; errors are one line. Returns the exit status."""
    try:
        status = demo.main(args=args, prog_name="examples/demo", standalone_mode=False)
    except (NecropsyError, click.ClickException, click.Abort, KeyboardInterrupt) as error:
        return tell(error, command="demo")
    return int(status or 0)
