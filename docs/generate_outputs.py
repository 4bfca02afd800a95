"""Puts the real output of programs into pages of the manual: `make outputs`.

docs/explanation/comparison.md gets what each tool says about one crash, docs/explanation/example-reports.md the
reports of its programs, the tutorial the report of its first program. Arguments choose some of them, by file name.

By hand, on Linux: it takes gcc, gdb, pystack and py-spy, and a kernel that writes cores to the working directory
(`/proc/sys/kernel/core_pattern` is a plain name). example-reports.md also takes g++, TensorFlow, and root, to make a
control group. Paths are shortened. Long lines and outputs are cut, and each cut is marked.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import control_group
from page_programs import programs

DOCS = Path(__file__).parent
COMPARISON = DOCS / "explanation" / "comparison.md"
EXAMPLES = DOCS / "explanation" / "example-reports.md"
TUTORIAL = DOCS / "tutorial" / "first-dead-process.md"
WIDTH = 110
"""Columns of a line; the rest is cut."""
PYTHON = sys.executable
BIN = Path(PYTHON).parent


def block(page: str, name: str) -> str:
    """The code block that follows ``name`` on the page."""
    found = re.search(rf"^`{re.escape(name)}`[^\n]*\n\n```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"the page has no program {name}")
    return found[1]


def tools(core: str) -> dict[str, tuple[list[str], int]]:
    """Marker on the page -> command, and how many lines of its output to keep."""
    pystack = shutil.which("pystack", path=f"{BIN}:{os.environ['PATH']}") or "pystack"
    # The extension for Python is beside the interpreter in some builds; gdb loads it only where that is allowed.
    gdb = ["gdb", "-q", "-batch", "-iex", "set auto-load safe-path /"]
    return {
        "nothing": (["sh", "-c", f"{PYTHON} train.py; true"], 5),
        "faulthandler": (["sh", "-c", f"{PYTHON} -X faulthandler train.py; true"], 8),
        "py-spy": ([str(BIN / "py-spy"), "dump", "--core", core], 10),
        "pystack": ([pystack, "core", core], 16),
        "pystack-native": ([pystack, "core", "--native", core, PYTHON], 40),
        "gdb": ([*gdb, "-ex", "bt", PYTHON, core], 20),
        "gdb-python": ([*gdb, "-ex", "py-bt", PYTHON, core], 20),
        "necropsy": ([PYTHON, "-m", "necropsy", "run", PYTHON, "train.py"], 40),
        "necropsy-full": ([PYTHON, "-m", "necropsy", "show", "--full"], 60),
    }


def shortened(output: str, folder: Path, most: int) -> str:
    """Without paths of this machine; the first lines, each at most as long as a page is wide."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output).replace(f"{folder}/", "").replace(str(folder), ".")
    output = output.replace(PYTHON, "python")
    output = re.sub(r"/[\w./+-]*/(Python-3[\w.]*/|lib/python3[\w.]*/|bin/python)", r".../\1", output)
    output = re.sub(r"warning: [^\n]*\n", "", output).replace("\0", "")
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    kept = [line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..." for line in lines[:most]]
    if len(lines) > most:
        kept.append(f"[{len(lines) - most} more lines]")
    return "\n".join(kept)


def printed(command: Sequence[str], folder: Path) -> str:
    """All that a command writes."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "NECROPSY_OUTPUT": str(folder / "reports"),
        "NO_COLOR": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout


def filled(page: str, marker: str, text: str) -> str:
    """The page with the output between the comments of ``marker``."""
    pattern = re.compile(rf"(<!-- {marker}: begin[^\n]*-->\n).*?(<!-- {marker}: end -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"the page has no place for {marker}")
    return pattern.sub(lambda match: f"{match[1]}```\n{text}\n```\n{match[2]}", page)


def comparison(page: str, folder: Path) -> str:
    """The page with the output of each tool on the crash that it describes."""
    for source in ("rows.c", "train.py"):
        (folder / source).write_text(block(page, source))
    build = ["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", "librows.so", "rows.c"]
    subprocess.run(build, cwd=folder, check=True)
    printed([PYTHON, "train.py"], folder)
    cores = sorted(folder.glob("core*"))
    if not cores:
        raise SystemExit("the kernel wrote no core into the working directory: see /proc/sys/kernel/core_pattern")
    core = cores[0].rename(folder / "the.core").name
    for marker, (command, most) in tools(core).items():
        page = filled(page, marker, shortened(printed(command, folder), folder, most))
    return page


def tutorial(page: str, folder: Path) -> str:
    """The page with the report of its first program."""
    (folder / "dies.py").write_text(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    command = [PYTHON, "-m", "necropsy", "run", PYTHON, "dies.py"]
    return filled(page, "report", shortened(printed(command, folder), folder, 60))


def examples(page: str, folder: Path) -> str:
    """The page with the report of each of its programs."""
    for name, program in programs(page).items():
        place = program.written(folder)
        command = ["sh", "-ec", program.commands]
        if name == "memory":
            with control_group.limited(256 << 20) as group:
                output = printed([*control_group.inside(group), *command], place)
        else:
            output = printed(command, place)
        page = filled(page, name, shortened(output, place, 60))
    return page


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    for path, write in ((COMPARISON, comparison), (EXAMPLES, examples), (TUTORIAL, tutorial)):
        if sys.argv[1:] and path.name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as name:
            page = write(path.read_text(), Path(name))
        path.write_text(page)


if __name__ == "__main__":
    main()
