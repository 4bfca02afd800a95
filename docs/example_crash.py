"""A real crash for the README and its picture: an op that recurses 100,000 times on a stack as small as on Windows."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

from demo.examples import catalogue  # noqa: E402
from demo.workshop import Workshop  # noqa: E402
from necropsy import serialize  # noqa: E402
from necropsy.model import Document  # noqa: E402

NAME = "deep-recursion-windows"
PROGRAM = ("train.py", "./op.so")


def document(folder: str) -> Document:
    """The document of the run; its temporary folder is shown as ``folder``, the interpreter as ``python``."""
    book = catalogue(EXAMPLES)
    example = next(one for one in book.example if one.name == NAME)
    if example.build is None:
        raise SystemExit(f"{NAME} has no op")
    library = Workshop(EXAMPLES, sys.executable).library(example.build, book.build[example.build])
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copy(EXAMPLES / "scripts" / example.script, place / "train.py")
        shutil.copy(library, place / "op.so")
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        words = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", "report.json", "--"]
        subprocess.run(
            [*words, sys.executable, *PROGRAM],
            cwd=place,
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (example.stack, hard)),
        )
        text = (place / "report.json").read_text(encoding="utf-8")
    made = serialize.loads(text.replace(name, folder).replace(sys.executable, "python").encode())
    if not made.reports:
        raise SystemExit("the example did not crash: no report")
    return made
