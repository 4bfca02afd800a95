"""Writes a finding as a pytest file that imports nothing beyond pytest, NumPy and the framework.

Where the call dies in plain Python, the test makes it. Otherwise the test makes it in a process under ``necropsy run``,
and fails with the name of the rule.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.errors import NecropsyError
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.target.functions import VARIABLE

MARK = "Found by necropsy fuzz"
_LONGEST = 150
_NUMPY, _TENSORFLOW = "import numpy as np", "import tensorflow as tf"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def test_name(op: str) -> str:
    """``test_gather_rows`` for ``GatherRows``."""
    return "test_" + re.sub(r"\W+", "_", _WORD.sub("_", op)).strip("_").lower()


def function_name(op: str, configuration: Configuration) -> str:
    """The function of the file that makes the call in its own process."""
    name = test_name(op)
    return name if configuration.is_of_plain_python else name.replace("test_", "call_", 1)


def place_for(folder: Path, op: str, recipe: Recipe, kind: str = "") -> tuple[Path, bool]:
    """Where the test of this call goes: into its file of an earlier campaign, or into a new one, which is created.

    ``kind``: what its name ends with. Returns the path, and whether it is new.

    Raises:
        NecropsyError: it cannot be created.

    """
    return _first_fitting(folder, test_name(op) + kind, lambda path: _is_of(path, recipe))


def _first_fitting(folder: Path, stem: str, fits: Callable[[Path], bool]) -> tuple[Path, bool]:
    """The first file of this name, or with a number after it, that fits or can be created; whether it was created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = folder / (f"{stem}.py" if number == 1 else f"{stem}_{number}.py")
            with contextlib.suppress(FileExistsError):
                path.touch(exist_ok=False)  # another process may look for a name at the same time
                return path, True
            if fits(path):
                break
    except OSError as error:
        raise NecropsyError(f"cannot write to {folder}: {error.strerror or error}") from error
    return path, False


def write(place: Path, text: str) -> None:
    """Write a test.

    Raises:
        NecropsyError: that is not possible.

    """
    try:
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NecropsyError(f"cannot write {place}: {error.strerror or error}") from error


def moved(text: str, source: Path, place: Path, here: Path, folder: Path) -> Path:
    """Put a test that was written for ``place``, with the target at ``source``, into a folder of this machine.

    ``here``: the target on this machine. Returns where the test is now.

    Raises:
        NecropsyError: it cannot be written.

    """
    own = text.replace(repr(_beside(source, place)), repr(_beside(here, folder / place.name)))
    path, is_new = _first_fitting(folder, place.stem, lambda path: _text_of(path) == own)
    if is_new:
        write(path, own)
    return path


def _text_of(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _is_of(path: Path, recipe: Recipe) -> bool:
    text = _text_of(path)
    return MARK in text and arguments_of(recipe) in text


@dataclass(frozen=True)
class Source:
    """Where the function under test comes from: a library of ops, TensorFlow, or a Python file or module."""

    library: Path | None = None
    module: str | None = None
    """The path of a Python file, or the name of a module."""
    function: str | None = None
    is_given: bool = False
    """The function is decorated with Hypothesis's ``@given``, and the one behind it is called."""

    @property
    def is_of_framework(self) -> bool:
        """It is one of TensorFlow's own ops."""
        return self.library is None and self.module is None

    def lines(self, place: Path) -> tuple[list[str], list[str], str]:
        """The imports, the lines at the top, and the line that makes what a call names."""
        numpy = [_NUMPY]
        inner = ".hypothesis.inner_test" if self.is_given else ""
        if self.module is not None and self.module.endswith(".py"):
            top = [f"FILE = Path(__file__).parent / {_beside(Path(self.module), place)!r}"]
            top.append("sys.path.insert(0, str(FILE.parent))")
            made = f'target = runpy.run_path(str(FILE))["{self.function}"]{inner}'
            return ["import runpy", "import sys", "from pathlib import Path", "", *numpy], top, made
        if self.module is not None:
            return (
                ["import importlib", "", *numpy],
                [],
                f'target = importlib.import_module("{self.module}").{self.function}{inner}',
            )
        tensorflow = [*numpy, _TENSORFLOW]
        if self.library is None:
            return tensorflow, [], "ops = tf.raw_ops"
        beside = f"Path(__file__).parent / {_beside(self.library, place)!r}"
        top = [f'LIBRARY = os.environ.get("{VARIABLE}") or str({beside})']
        return ["import os", "from pathlib import Path", "", *tensorflow], top, "ops = tf.load_op_library(LIBRARY)"


def lines_of(source: Source, place: Path, recipe: Recipe) -> tuple[list[str], list[str], str]:
    """What the source needs, and the libraries of a function's tensors."""
    imports, top, made = source.lines(place)
    if any(one.is_named for one in recipe.handles.values()):
        imports = ["import uuid", *([] if "" in imports else [""]), *imports]
    libraries = {"tensorflow": _TENSORFLOW, "torch": "import torch"}
    return [*imports, *(libraries[one] for one in sorted(set(recipe.libraries.values())))], top, made


def _beside(path: Path, place: Path) -> str:
    try:
        return Path(os.path.relpath(path.resolve(), place.parent.resolve())).as_posix()
    except ValueError:  # on another drive
        return path.resolve().as_posix()


def text_of(
    op: str,
    recipe: Recipe,
    *,
    repeated: int,
    headline: str,
    source: Source,
    place: Path,
    configuration: Configuration = PLAIN,
) -> str:
    """The file's text. Its lines are the same for any ``headline``, which a report that names them relies on."""
    imports, top, made = lines_of(source, place, recipe)
    call = _calls(recipe, repeated, configuration)
    if not any("np." in line for line in call):
        imports = [one for one in imports if one not in {_NUMPY, ""}]
    head = [f'"""{quoted(headline)}', "", f"{MARK}. {_PASSES}"]
    if configuration.is_of_plain_python:
        head += ['"""', "", *imports, "", *([*top, ""] if top else ())]
        return "\n".join([*head, "", f"def {test_name(op)}():", f"    {made}", *call]) + "\n"
    head += [f"The call is made in a process of its own, {configuration}.", '"""', ""]
    frameworks = [one for one in imports if one.rpartition(" ")[2] in {"np", "tf", "torch"}]
    limit = configuration.limit
    standard = {one for one in imports if one and one not in frameworks} | _standard(configuration)
    lines = [
        *(*head, *sorted(standard, key=lambda one: (one.startswith("from"), one)), ""),
        *([*top, ""] if top else ()),
        "",
        f"def {function_name(op, configuration)}({'' if limit is None else 'seconds=0'}):",
        *(f"    {one}" for one in frameworks),
        *([""] if frameworks else ()),
        f"    {made}",
        *_prepared(configuration, frameworks),
        *call,
        "",
        "",
        f"def {test_name(op)}():",
        *_in_a_child(configuration),
        "",
        "",
        'if __name__ == "__main__":',
        f"    {function_name(op, configuration)}({'' if limit is None else f'{limit:.0f}'})",
    ]
    return "\n".join(lines) + "\n"


def _standard(configuration: Configuration) -> set[str]:
    """What the lines of a test with a child need of the standard library."""
    names = {"subprocess", "sys"}
    if configuration.limit is not None or _dies_by_itself(configuration):
        names |= {"signal"}
    else:
        names |= {"json", "os", "shutil", "tempfile"}
    names |= {"ctypes"} if configuration.guard is not None else set()
    names |= {"threading", "time"} if configuration.threads is not None else set()
    names |= {"resource"} if configuration.stack is not None or configuration.memory is not None else set()
    return {*(f"import {one}" for one in names), *(["from pathlib import Path"] if "json" in names else [])}


def _dies_by_itself(configuration: Configuration) -> bool:
    """The child is plain Python: threads kill it, and need nothing of necropsy."""
    return configuration.threads is not None and configuration.guard is None


def _calls(recipe: Recipe, repeated: int, configuration: Configuration) -> list[str]:
    """The lines that make the inputs and then the call, or let threads make it."""
    lines = [arguments_of(recipe)]
    if configuration.threads is not None:
        threads = configuration.threads
        lines += [f"    calls = [({recipe.function}, arguments)]"]
        lines += [f"    calls += [({function}, dict({given}))]" for function, given in threads.beside]
        started = _STARTED_THREADS.format(many=threads.many)
        return [*lines, _UNTIL, *_WORK.splitlines(), *started.splitlines()]
    function = recipe.function
    if configuration.graph:
        lines += [f"    in_graph = tf.function(lambda **inputs: {function}(**inputs), autograph=False)"]
        function = "in_graph"
    indented = "        " if repeated == 1 else "            "
    return [
        *lines,
        "    try:",
        *(() if repeated == 1 else (f"        for _ in range({repeated}):  # the damage shows later",)),
        f"{indented}{function}(**arguments)",
        "    except Exception as error:",
        *(_CAUGHT if sys.platform == "win32" else ()),
        "        print(error)  # a proper refusal",
    ]


def _prepared(configuration: Configuration, frameworks: Sequence[str]) -> list[str]:
    """The lines of the child before the call: what sets the configuration up."""
    lines = []
    if configuration.stack is not None:
        lines += ["    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]"]
        lines += [f"    resource.setrlimit(resource.RLIMIT_STACK, ({configuration.stack}, hard))"]
    if configuration.memory is not None:
        lines += ["    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]"]
        lines += [f"    resource.setrlimit(resource.RLIMIT_DATA, ({configuration.memory}, hard))"]
    if configuration.guard is not None:
        lines += [_STARTED] if _TENSORFLOW in frameworks else []
        lines += [_TAKEN] if _NUMPY in frameworks else []
        lines += ["    ctypes.CDLL(None).necropsy_guard_arm(-1)  # every buffer from now on"]
    if configuration.limit is not None:
        lines += ["    signal.alarm(seconds)  # SIGALRM ends the process then"]
    return lines


def _in_a_child(configuration: Configuration) -> list[str]:
    """The body of the test."""
    if configuration.limit is not None:
        return _TIMED.format(limit=f"{configuration.limit:.0f}").splitlines()
    if _dies_by_itself(configuration):
        return _ALONE.splitlines()
    options, variables = ["--quiet", "--json"], '"NECROPSY_OUTPUT": folder'
    if configuration.guard_options is not None:
        options, variables = ["--guard", *options], f'{variables}, "NECROPSY_GUARD": "{configuration.guard_options}"'
    return _CHILD.format(options=", ".join(f'"{one}"' for one in options), variables=variables).splitlines()


_CAUGHT = (
    '        if isinstance(error, OSError) and str(error).startswith("exception: "):',
    "            raise  # a crash that ctypes has caught",
)
_PASSES = "The test passes once the call ends with a result, or with an error that Python sees."
_STARTED = "    tf.constant(0)  # TensorFlow frees arrays when it starts"
_TAKEN = (
    "    taken = [np.empty(size, np.uint8) for size in range(1024) for _ in range(8)]  # NumPy's store of freed memory"
)
_CHILD = """\
    import pytest

    necropsy = shutil.which("necropsy")
    if necropsy is None:
        pytest.skip("necropsy is not on PATH, and the call dies under `necropsy run` only")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        words = [necropsy, "run", {options}, str(report), "--", sys.executable, __file__]
        variables = {{**os.environ, {variables}}}
        done = subprocess.run(words, env=variables, capture_output=True, text=True)
        if not report.exists():
            pytest.skip("necropsy cannot run it: " + (done.stderr.strip().splitlines() or ["no reason given"])[0])
        found = [one["verdict"] for one in json.loads(report.read_text())["reports"]]
    if found:
        pytest.fail("; ".join(f"{{one['rule']}}: {{one['summary']}}" if one else "died" for one in found))
    assert done.returncode == 0, done.stderr
"""

_TIMED = """\
    import pytest

    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, errors="replace")
    if done.returncode == -signal.SIGALRM:
        pytest.fail("hang: the call did not end within {limit} s")
    assert done.returncode == 0, done.stderr
"""


_UNTIL = "    until = time.monotonic() + 20  # seconds, for it is a matter of chance when the threads meet"
_WORK = """\

    def work(first):
        while time.monotonic() < until:
            for function, given in calls[first:] + calls[:first]:
                try:
                    function(**given)
                except Exception:
                    continue  # a proper refusal

"""
_STARTED_THREADS = """\
    threads = [threading.Thread(target=work, args=(at % len(calls),)) for at in range({many})]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
"""
_ALONE = """\
    import pytest

    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, errors="replace")
    if done.returncode < 0:
        pytest.fail(f"the process died by {signal.Signals(-done.returncode).name}")
    assert done.returncode == 0, done.stderr
"""


def arguments_of(recipe: Recipe) -> str:
    """The line, or lines, of a function that make the inputs and attributes of a call."""
    given = recipe.arguments()
    if not given:
        return "    arguments = {}"
    return "\n".join(["    arguments = {", *(f'        "{name}": {one},' for name, one in given.items()), "    }"])


def quoted(text: str) -> str:
    """One line for a docstring."""
    plain = re.sub(r"\s+", " ", text).replace("\\", "/").replace('"', "'").strip()
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."
