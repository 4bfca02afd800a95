"""Writes a finding as a pytest file that needs neither necropsy nor anything beyond NumPy and the framework."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from necropsy.fuzz.recipes import Recipe, literal, value

VARIABLE = "NECROPSY_FUZZ_LIBRARY"
_MARK = "Found by necropsy fuzz"
_LONGEST = 150
_NUMPY = "import numpy as np"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def test_name(op: str) -> str:
    """``test_gather_rows`` for ``GatherRows``."""
    return "test_" + re.sub(r"\W+", "_", _WORD.sub("_", op)).strip("_").lower()


def place_for(folder: Path, op: str, recipe: Recipe) -> Path:
    """Where the test of this call goes: into its file of an earlier campaign, or into a new one."""
    number = 1
    while True:
        path = folder / (f"{test_name(op)}.py" if number == 1 else f"{test_name(op)}_{number}.py")
        if not path.exists() or _is_of(path, recipe):
            return path
        number += 1


def _is_of(path: Path, recipe: Recipe) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return _MARK in text and _arguments(recipe) in text


@dataclass(frozen=True)
class Source:
    """Where the function under test comes from: a library of ops, TensorFlow, or a Python file or module."""

    library: Path | None = None
    module: str | None = None
    """The path of a Python file, or the name of a module."""
    function: str | None = None

    def lines(self, place: Path) -> tuple[list[str], list[str], str]:
        """The imports, the lines at the top, and the line that makes what a call names."""
        numpy = [_NUMPY]
        if self.module is not None and self.module.endswith(".py"):
            top = [f"FILE = Path(__file__).parent / {_beside(Path(self.module), place)!r}"]
            top.append("sys.path.insert(0, str(FILE.parent))")
            made = f'target = runpy.run_path(str(FILE))["{self.function}"]'
            return ["import runpy", "import sys", "from pathlib import Path", "", *numpy], top, made
        if self.module is not None:
            return (
                ["import importlib", "", *numpy],
                [],
                f'target = importlib.import_module("{self.module}").{self.function}',
            )
        tensorflow = [*numpy, "import tensorflow as tf"]
        if self.library is None:
            return tensorflow, [], "ops = tf.raw_ops"
        beside = f"Path(__file__).parent / {_beside(self.library, place)!r}"
        top = [f'LIBRARY = os.environ.get("{VARIABLE}") or str({beside})']
        return ["import os", "from pathlib import Path", "", *tensorflow], top, "ops = tf.load_op_library(LIBRARY)"


def _beside(path: Path, place: Path) -> str:
    return os.path.relpath(path.resolve(), place.parent.resolve())


def text_of(op: str, recipe: Recipe, *, repeated: int, headline: str, source: Source, place: Path) -> str:
    """The file's text. Its lines are the same for any ``headline``, which a report that names them relies on."""
    imports, top, made = source.lines(place)
    if "np." not in _arguments(recipe):
        imports = [one for one in imports if one not in {_NUMPY, ""}]
    lines = [
        f'"""{_quoted(headline)}',
        "",
        f"{_MARK}. The test passes once the call ends with a result, or with an error that Python sees.",
        '"""',
        "",
        *imports,
        "",
        *([*top, ""] if top else ()),
    ]
    indented = "        " if repeated == 1 else "            "
    lines += [
        "",
        f"def {test_name(op)}():",
        f"    {made}",
        _arguments(recipe),
        "    try:",
        *(() if repeated == 1 else (f"        for _ in range({repeated}):  # the damage shows later",)),
        f"{indented}{recipe.function}(**arguments)",
        "    except Exception as error:",
        "        print(error)  # a proper refusal",
    ]
    return "\n".join(lines) + "\n"


def _arguments(recipe: Recipe) -> str:
    given = {name: value(one, arrays=recipe.arrays) for name, one in recipe.inputs.items()}
    given |= {name: literal(one) for name, one in recipe.attributes.items()}
    if not given:
        return "    arguments = {}"
    return "\n".join(["    arguments = {", *(f'        "{name}": {one},' for name, one in given.items()), "    }"])


def _quoted(text: str) -> str:
    """One line for a docstring."""
    plain = re.sub(r"\s+", " ", text).replace("\\", "/").replace('"', "'").strip()
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."
