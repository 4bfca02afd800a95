"""Writes the table "Causes put to the test" of explanation/tried-on.md, from what the demo with `--confirm` found.

    python examples/demo --confirm --json proofs.json
    python docs/generate_proofs.py proofs.json [MORE.json ...]

What stands between the two marks is replaced. Several files: one after the other, as if they were one run.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "explanation" / "tried-on.md"
BEGIN, END = "<!-- generate_proofs.py -->", "<!-- /generate_proofs.py -->"


def decided(example: dict[str, Any]) -> str:
    """What the experiments said that decided: the sizes of a stack, or what a check or a change has shown."""
    sizes: dict[str, list[tuple[int, str]]] = {"dies": [], "survives": []}
    words = []
    for one in example["experiments"]:
        name, outcome, means = one["name"], one["outcome"], one["means"] or ""
        if size := re.fullmatch(r"stack-(\d+)(-hook)?", name):
            told = one["change"].removeprefix("a stack of ").split(",")[0]
            sizes.setdefault(outcome.split()[0], []).append((int(size[1]), told))
        elif name.endswith("-fsanitize=address") and ", by " in outcome:
            words.append("AddressSanitizer: " + short(outcome.split(", by ", 1)[1]))
        elif name == "valgrind" and outcome.startswith("the first bad access: "):
            words.append("valgrind: " + short(outcome.split(": ", 1)[1]))
        elif means.startswith("the check found it") and not outcome.startswith("dies in another way"):
            continue  # the death that it dies anyway
        elif means.startswith(("the check found it", "as ")) and "no proof" not in means:
            words.append(f"{one['change']}: {outcome}")
    for verb, tried in (("dies", sizes["dies"]), ("lives", sizes["survives"])):
        if tried:
            words.append(f"{verb} with " + " and ".join(told for _size, told in sorted(tried)))
    return "; ".join(dict.fromkeys(words)) or "-"


def short(said: str) -> str:
    """The function without its parameters, as code."""
    rule, _, where = said.partition(", ")
    function, _, place = where.partition(" in ")
    function = re.sub(r"\(.*\)", "", function)
    return f"{rule} in `{function}`, {place}" if place else said


def fix_of(example: dict[str, Any]) -> str:
    """The fixes under which it lived."""
    fixes = [f"`{one['command']}`" if one["command"] else one["text"].split(":")[0] for one in example["fixes"]]
    return ", ".join(fixes) or f"none: {example['no_fix'] or 'none was verified'}"


def rivals(example: dict[str, Any]) -> str:
    """What became of the weaker rivals."""
    words = {"observed": "not tested", "inconclusive": "not decided"}
    return ", ".join(f"{rule} {words.get(status, status)}" for rule, status in example["rivals"].items()) or "none"


def table(told: list[dict[str, Any]]) -> str:
    """The text between the marks."""
    examples = [one for run in told for one in run["examples"]]
    lines = [
        "| example | verdict | what decided | fix that was tried | rivals | runs | CPU |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in examples:
        cells = [one["example"], f"{one['rule']}, {one['status']}", decided(one), fix_of(one), rivals(one)]
        cells += [str(one["runs"]), f"{one['cpu_s']:.0f} s"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    wrong = [one["example"] for one in examples if one["faults"]]
    runs, cpu = sum(one["runs"] for one in examples), sum(run["cpu_s"] for run in told)
    wall = sum(run["seconds"] for run in told)
    lines.append("")
    lines.append(
        f"{len(examples) - len(wrong)} of {len(examples)} as the catalogue says; {runs} runs took {cpu:,.0f} s of CPU "
        f"time, compilers included, and {wall:,.0f} s by the clock, {told[0]['jobs']} campaigns at a time."
    )
    return "\n".join(lines)


def main(files: list[str]) -> None:
    """Replace what stands between the marks of the page."""
    told = [json.loads(Path(file).read_text()) for file in files]
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{PAGE} has no place for it: {BEGIN} ... {END}")
    PAGE.write_text(f"{before}{BEGIN}\n{table(told)}\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
