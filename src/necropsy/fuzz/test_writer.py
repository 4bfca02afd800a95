"""Writes a finding as a pytest file that needs neither necropsy nor anything beyond NumPy and the framework."""

from __future__ import annotations

import os
import re
from pathlib import Path

from necropsy.fuzz.recipes import Recipe, literal, value

VARIABLE = "NECROPSY_FUZZ_LIBRARY"
_MARK = "Found by necropsy fuzz"
_LONGEST = 150
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


def text_of(op: str, recipe: Recipe, *, repeated: int, headline: str, library: Path | None, place: Path) -> str:
    """The file's text. Its lines are the same for any ``headline``, which a report that names them relies on."""
    lines = [
        f'"""{_quoted(headline)}',
        "",
        f"{_MARK}. The test passes once the op answers with a result or with an error that Python sees.",
        '"""',
        "",
        *(("import os", "from pathlib import Path", "") if library is not None else ()),
        "import numpy as np",
        "import tensorflow as tf",
        "",
    ]
    if library is not None:
        beside = os.path.relpath(library.resolve(), place.parent.resolve())
        lines.append(f'LIBRARY = os.environ.get("{VARIABLE}") or str(Path(__file__).parent / {beside!r})')
        lines.append("")
    loaded = "tf.load_op_library(LIBRARY)" if library is not None else "tf.raw_ops"
    indented = "        " if repeated == 1 else "            "
    lines += [
        "",
        f"def {test_name(op)}():",
        f"    ops = {loaded}",
        _arguments(recipe),
        "    try:",
        *(() if repeated == 1 else (f"        for _ in range({repeated}):  # the damage shows later",)),
        f"{indented}{recipe.function}(**arguments)",
        "    except Exception as error:",
        "        print(error)  # the op refuses it properly",
    ]
    return "\n".join(lines) + "\n"


def _arguments(recipe: Recipe) -> str:
    given = {name: value(one) for name, one in recipe.inputs.items()}
    given |= {name: literal(one) for name, one in recipe.attributes.items()}
    if not given:
        return "    arguments = {}"
    return "\n".join(["    arguments = {", *(f'        "{name}": {one},' for name, one in given.items()), "    }"])


def _quoted(text: str) -> str:
    """One line for a docstring."""
    plain = re.sub(r"\s+", " ", text).replace("\\", "/").replace('"', "'").strip()
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."
