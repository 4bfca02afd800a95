"""Move the fragments in ``changelog.d`` into CHANGELOG.md: ``python scripts/collect_changelog.py VERSION``.

A fragment is a file NAME.KIND.md with one paragraph of Markdown. What is below *Unreleased* becomes the version's.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "fixed", "removed", "security")
UNRELEASED = "## Unreleased\n"


def problem_with(path: Path) -> str | None:
    """Why a file is no fragment; None where it is one."""
    parts = path.name.split(".")
    if len(parts) != 3 or parts[1] not in KINDS or parts[2] != "md":
        return f"{path.name}: a fragment is called NAME.KIND.md, where KIND is one of {', '.join(KINDS)}"
    text = path.read_text(encoding="utf-8").strip()
    if not text or "\n\n" in text or text.startswith(("#", "-", "*")):
        return f"{path.name}: a fragment is one paragraph, without a heading or a dash in front"
    return None


def item(text: str) -> str:
    """A fragment as an item of a list."""
    return "- " + "\n  ".join(line.strip() for line in text.strip().splitlines()) + "\n"


def collected(changelog: str, fragments: dict[str, list[str]], title: str) -> str:
    """The changelog with the fragments of each kind, under ``title`` instead of *Unreleased*.

    Raises:
        ValueError: it has no heading *Unreleased*.

    """
    before, found, rest = changelog.partition(UNRELEASED)
    if not found:
        raise ValueError("CHANGELOG.md has no heading '## Unreleased'")
    section, older, tail = rest.partition("\n## ")
    for kind in KINDS:
        items = "".join(map(item, fragments.get(kind, ())))
        heading = f"### {kind.capitalize()}\n"
        if items and heading in section:
            start, _, more = section.partition(heading)
            of_kind, following, others = more.partition("\n### ")
            section = f"{start}{heading}{of_kind.rstrip()}\n{items}{following}{others}"
        elif items:
            section = f"{section.rstrip()}\n\n{heading}\n{items}"
    return f"{before}{UNRELEASED}\n## {title}\n{section}{older}{tail}"


def main() -> int:
    """Write CHANGELOG.md and delete the fragments; 2 where one is not as it has to be."""
    parser = argparse.ArgumentParser(description="Move the fragments in changelog.d into CHANGELOG.md.")
    parser.add_argument("version", metavar="VERSION")
    version = parser.parse_args().version
    paths = sorted((ROOT / "changelog.d").glob("*"))
    problems = [problem for path in paths if (problem := problem_with(path))]
    if not re.fullmatch(r"\d+\.\d+\.\d+\w*", version):
        problems.append(f"{version} is not a version")
    if problems:
        print("\n".join(f"collect_changelog: {one}" for one in problems), file=sys.stderr)
        return 2
    fragments: dict[str, list[str]] = {}
    for path in paths:
        fragments.setdefault(path.name.split(".")[1], []).append(path.read_text(encoding="utf-8"))
    changelog = ROOT / "CHANGELOG.md"
    title = f"{version} ({date.today().isoformat()})"  # noqa: DTZ011 - the day where the release is made
    changelog.write_text(collected(changelog.read_text(encoding="utf-8"), fragments, title), encoding="utf-8")
    for path in paths:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
