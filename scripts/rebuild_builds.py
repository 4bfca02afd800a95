"""Check what ``src/necropsy/data/builds.json`` says of the wheels of TensorFlow and PyTorch against their metadata.

    python scripts/rebuild_builds.py                      every release in the table
    python scripts/rebuild_builds.py tensorflow==2.20     some of them
    python scripts/rebuild_builds.py --write              and write what differs into the table

pip is asked for the metadata of one wheel a release (no wheel is downloaded where the index serves metadata alone). The
parts on tested builds, drivers and cards are from documents and are not checked here: ``_source`` in the table names
them. A release that cannot be had is named.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.parent / "src" / "necropsy" / "data" / "builds.json"
_PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
)


def metadata(package: str, version: str, python: str) -> dict[str, Any] | None:
    """The metadata of a release's wheel for a version of Python; None where pip does not find it."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:"]
        words += [
            "--target",
            folder,
            "--python-version",
            python,
            "--implementation",
            "cp",
            "--abi",
            f"cp{python}",
            "--abi",
            f"cp{python}m",
        ]
        words += [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", *words, "--report", "-", f"{package}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    found: dict[str, Any] = json.loads(done.stdout)["install"][0]["metadata"]
    return found


def required(found: dict[str, Any], name: str, extra: str | None = None) -> str | None:
    """What the wheel asks of a package: ``<2,>=1.23``; with ``extra`` what it asks there, name included."""
    for row in found.get("requires_dist", ()):
        text, _, marker = row.partition(";")
        match = re.match(rf"\s*({name}[\w-]*)\s*\(?([^)]*)\)?", text)
        of_extra = "extra ==" in marker
        if match is None or of_extra != (extra is not None) or (extra is not None and extra not in marker):
            continue
        asked = match[2].replace(" ", "")
        return match[1] + asked if extra or name.startswith("nvidia") else asked
    return None


def python_for(row: dict[str, str]) -> str:
    """A version of Python that the release has a wheel for: ``39``."""
    names = re.findall(r"3\.(\d+)", row["python"])
    newest = min(int(names[-1]), 11) if "-" in row["python"] else max(int(names[0]), 11)
    return f"3{newest}"


def check(package: str, row: dict[str, str]) -> dict[str, str] | None:
    """What the wheel's metadata say where the row says something; None where the wheel is not to be had."""
    found = metadata(package, row["newest"], python_for(row))
    if found is None:
        return None
    said = {
        "numpy": required(found, "numpy"),
        "protobuf": required(found, "protobuf"),
        "cudnn_wheel": required(found, "nvidia-cudnn", None if package == "torch" else "and-cuda"),
    }
    return {key: value for key, value in said.items() if value is not None and key in row}


def main() -> int:
    """Check the releases that are named, or all; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", metavar="PACKAGE==MAJOR.MINOR")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = TABLE.read_text(encoding="utf-8")
    table = json.loads(text)
    different = 0
    for package in ("tensorflow", "torch"):
        for name, row in table[package].items():
            if given.releases and f"{package}=={name}" not in given.releases:
                continue
            found = check(package, row)
            if found is None:
                print(f"{package} {row['newest']}: not checked, pip finds no wheel for Python {python_for(row)}")
                continue
            for key, value in found.items():
                if _parts(value) != _parts(row[key]):
                    different += 1
                    print(f"{package} {row['newest']}: {key} is {value}, the table says {row[key]}")
                    text = text.replace(json.dumps(row), json.dumps(row | {key: value}))
            print(f"{package} {row['newest']}: {', '.join(found) or 'nothing to compare'}")
    if given.write:
        TABLE.write_text(text, encoding="utf-8")
    return bool(different)


def _parts(requirement: str) -> set[str]:
    return set(requirement.split(","))


if __name__ == "__main__":
    sys.exit(main())
