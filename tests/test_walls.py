"""The house rules of the layout, as a test: imports go one way, one rule is one file, no module grows without end."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "necropsy"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Who may import whom, by the first part of the path below necropsy. These are open to all:
OPEN = {"model", "errors", "lazy_re"}
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "errors": set(),
    "lazy_re": set(),
    "rule": {"model"},
    "predicates": {"model", "rule", "data"},
    "serialize": {"model"},
    "frame_filter": {"model", "predicates", "data"},
    "reproducer": {"model"},
    "ownership": {"model", "frame_filter", "data"},
    "signature": {"model", "predicates", "frame_filter"},
    "secrets": {"data", "secrets"},
    "redact": {"model", "secrets"},
    "consequences": {"model", "redact", "formats"},
    "document": {"model", "redact", "rule", "formats", "diagnose", "consequences"},
    "data": set(),
    "formats": {"model", "formats", "data"},
    "launcher": set(),
    "temporary_folders": set(),
    "json_lines": set(),
    "supervised": {"model", "serialize"},
    "crashed": {"model", "reports"},
    "contain": {"capture", "contain", "crashed", "model", "formats", "serialize", "reporting", "watch"},
    "notebook": {"notebook", "contain", "crashed", "reports", "watch"},
    "watch": {"watch", "capture", "reporting", "rules", "serialize", "console", "model"},
    "auto": {"watch"},
    "capture": {"model", "formats", "capture", "data", "redact", "secrets", "launcher", "reproducer"},
    "rules": {"model", "rule", "rules", "predicates", "frame_filter", "ownership", "data", "reproducer"},
    "diagnose": {"examine", "model", "rule", "rules", "signature", "ownership"},
    "examine": {"model", "rule"},
    "reports": {"model", "reports", "data", "redact", "serialize", "reproducer"},
    "send": {"model", "redact", "reports", "send"},
    "console": set(),
    "report_archive": {"model", "serialize"},
    "store": {"model", "report_archive"},
    "ray_cluster": set(),
    "github": {"model", "reports", "console"},
    "confirm": {
        "model",
        "formats",
        "rule",
        "capture",
        "diagnose",
        "signature",
        "document",
        "consequences",
        "serialize",
        "console",
        "confirm",
        "redact",
        "data",
        "launcher",
    },
    "warm_up": {"model", "redact", "diagnose", "document", "reports", "rule"},
    "reporting": {
        "console",
        "document",
        "github",
        "model",
        "profile",
        "redact",
        "report_archive",
        "reports",
        "rules",
        "serialize",
        "store",
        "warm_up",
    },
    "profile": {"model", "document", "rule", "rules", "data", "confirm", "capture", "profile"},
    "doctor": {"model", "formats", "data", "doctor"},
    "audit": {"model", "formats", "audit", "serialize"},
    "prove": {"model", "formats", "confirm", "json_lines", "prove"},
    "dataset": {"dataset"},  # it runs where nothing else of necropsy can be imported
    "pytest_plugin": {
        "capture",
        "model",
        "pytest_plugin",
        "watch",
        "crashed",
        "reports",
        "report_archive",
        "serialize",
        "github",
        "temporary_folders",
    },
    "reduce": {"reduce", "model", "confirm", "crashed", "sandbox", "supervised", "temporary_folders", "watch"},
    "sandbox": set(),
    "triage": {"triage", "model", "formats", "predicates", "frame_filter", "ray_cluster"},
    "fuzz": {
        "fuzz",
        "model",
        "formats",
        "capture",
        "confirm",
        "crashed",
        "document",
        "json_lines",
        "ray_cluster",
        "redact",
        "rule",
        "rules",
        "sandbox",
        "serialize",
        "supervised",
        "temporary_folders",
        "watch",
    },
    "explanation": {"model", "document", "formats", "capture", "rule", "diagnose", "reports"},
}
# The verbs that the command line is made of: each composes what stands behind the walls.
SEES_ALL = {
    "__init__",
    "api",
    "checking",
    "cli",
    "__main__",
    "examination",
    "fuzzing",
    "gathering",
    "explanation",
    "limiting",
    "viewing",
    "probing",
    "proving",
    "reducing",
    "running",
    "triaging",
    "validation",
}
LIMIT = 400
SMALL, SMALL_ONES = 40, 5
"""Lines of a module that is hardly worth a file, and how many of those there may be; lower it where one is gone."""


def name_of(path: Path) -> str:
    """The wall that a module stands behind: its folder, or its own name at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> tuple[list[ast.Import | ast.ImportFrom], int, int]:
    """The imports anywhere in a module, its lines, and those of its docstrings: each is read once, which takes long."""
    text = path.read_text()
    imports: list[ast.Import | ast.ImportFrom] = []
    prose = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node, clean=False)
            prose += 0 if found is None else found.count("\n") + 1
    return imports, len(text.splitlines()), prose


@cache
def imported(path: Path) -> set[str]:
    """The parts of necropsy that a module imports anywhere in it, in functions too."""
    parts: set[str] = set()
    for node in parsed(path)[0]:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}: a relative import hides where it goes"
            names = [node.module or ""]
            if node.module == "necropsy":
                names = [f"necropsy.{alias.name}" for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("necropsy.")}
    return parts - {"__version__"}


def test_imports_go_one_way() -> None:
    behind = [path for path in MODULES if name_of(path) not in SEES_ALL]
    homeless = {name_of(path) for path in behind} - ALLOWED.keys()
    assert not homeless, "no place in the house: give them one in ALLOWED, or put them where they belong"
    through = {str(path): imported(path) - ALLOWED[name_of(path)] - OPEN for path in behind}
    assert not {path: parts for path, parts in through.items() if parts}


def test_nobody_imports_the_verbs() -> None:
    for path in MODULES:
        if name_of(path) not in SEES_ALL:
            assert not imported(path) & SEES_ALL, path


BACKENDS = {
    "process": {"process"},
    "linux": {"process", "linux"},
    "windows": {"process", "windows"},
}
"""Of the folders of capture: what is shared knows no system, and one system's does not know the other's."""


@pytest.mark.parametrize("folder", BACKENDS)
def test_the_backends_do_not_know_each_other(folder: str) -> None:
    modules = sorted((PACKAGE / "capture" / folder).rglob("*.py"))
    assert modules
    for path in modules:
        named = set(re.findall(r"necropsy\.capture\.(\w+)", path.read_text()))
        assert named & set(BACKENDS) <= BACKENDS[folder], path


def test_modules_stay_small() -> None:
    lines = {str(path): len(path.read_text().splitlines()) for path in MODULES}
    assert not {path: many for path, many in lines.items() if many > LIMIT}, "is there a real seam to split it along?"


def test_few_modules_are_tiny() -> None:
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}
    tiny = [path for path, many in lines.items() if many < SMALL and not path.endswith(("__init__.py", "__main__.py"))]
    assert len(tiny) <= SMALL_ONES, f"where else would somebody look for what is in them? {tiny}"


def test_no_utils() -> None:
    assert not [path for path in MODULES if path.stem in {"utils", "util", "helpers", "common", "misc"}]


def test_the_walls_test_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "def f():\n    from necropsy.capture.linux.supervise import tracer\n    import necropsy.rules.crash\n"
    )
    assert imported(path) == {"capture", "rules"}


def test_no_circles_between_files() -> None:
    """Imports in functions and for types count. The package's own file names what it offers, and is left out."""
    paths = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in MODULES
    }
    waiting = {name: direct(path, paths.keys()) - {name, "necropsy"} for name, path in paths.items()}
    while free := {name for name, needs in waiting.items() if not needs & waiting.keys()}:
        waiting = {name: needs for name, needs in waiting.items() if name not in free}
    assert not waiting, f"these import each other, or what does: {sorted(waiting)}"


def direct(path: Path, names: Collection[str]) -> set[str]:
    """The modules of necropsy that a module imports, of ``names``."""
    found: set[str] = set()
    for node in parsed(path)[0]:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            inside = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in names else node.module or "" for name in inside}
    return found & set(names)


MOST_PROSE = 85
"""Lines of docstrings in a thousand lines of code; the rules' docstrings are their pages, and do not count."""


def test_docstrings_are_short() -> None:
    read = [parsed(path) for path in MODULES if path.parent.parent.name != "rules"]
    lines, prose = sum(many for _, many, _ in read), sum(many for _, _, many in read)
    assert 1000 * prose <= MOST_PROSE * lines, "say it in fewer words, or let the code say it"
