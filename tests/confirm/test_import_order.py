"""Extension modules whose symbols clash: the pair that does not go together is found, and the order that lives."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confirming import confirmed, script, verdict
from necropsy.confirm.import_order import minimal
from necropsy.model import Diagnosis, Experiment

linux = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
compiler = pytest.mark.skipif(not shutil.which("gcc"), reason="this builds extension modules")

MODULE = r"""
#include <Python.h>
%s
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", 0, -1, 0};
PyMODINIT_FUNC PyInit__core(void) { %s return PyModule_Create(&definition); }
"""
ALPHA = "void *shared_table(void) { return 0; }"
BETA = """
static int one(void) { return 1; }
static int (*entries[1])(void) = {one};
void *shared_table(void) { return entries; }
"""
USES_TABLE = "if (((int (**)(void))shared_table())[0]() != 1) return 0;"
GLOBAL = "import os, sys\nbefore = sys.getdlopenflags()\nsys.setdlopenflags(before | os.RTLD_GLOBAL)\n"
WITH_GLOBAL = GLOBAL + "from . import _core\nsys.setdlopenflags(before)\n"


def package(place: Path, name: str, code: str, at_start: str, text: str = "from . import _core\n") -> None:
    folder = place / name
    folder.mkdir()
    (folder / "__init__.py").write_text(text)
    source = folder / "core.c"
    source.write_text(MODULE % (code, at_start))
    include = sysconfig.get_paths()["include"]
    library = folder / ("_core" + sysconfig.get_config_var("EXT_SUFFIX"))
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", f"-I{include}", "-o", str(library), str(source)], check=True)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Alpha gives its symbols to all; beta, which has one of the same name, then takes alpha's. The others are harmless."""
    package(tmp_path, "alpha", ALPHA, "", WITH_GLOBAL)
    package(tmp_path, "beta", BETA, USES_TABLE)
    for name in ("gamma", "delta"):
        package(tmp_path, name, "", "")
    return tmp_path


def rows(found: Diagnosis) -> dict[str, Experiment]:
    return {one.change: one for one in found.experiments}


@linux
@compiler
def test_the_pair_is_found_and_the_other_order_lives(packages: Path) -> None:
    source = script(packages, "import gamma, alpha, json\nimport delta\nimport beta\n")
    document, text = confirmed(packages, sys.executable, source)
    found = verdict(document)
    assert (found.rule, found.status) == ("conflicting-libraries", "confirmed")
    by_change = rows(found)
    died = by_change["import alpha; import beta"]
    assert died.crashed
    assert died.means == "each of them alone lives"
    swapped = by_change["import beta; import alpha"]
    assert (swapped.crashed, swapped.means) == (0, "the order decides")
    (fix,) = [one for one in found.fixes if one.verified]
    assert fix.command == "import beta"
    assert by_change["the program with beta imported first"].crashed == 0
    assert "import alpha; import beta" in " ".join(text.split())


@linux
@compiler
def test_what_has_to_come_later_by_the_script_is_tried_before(tmp_path: Path) -> None:
    """In a folder that the script adds itself: the second one uses what the third one makes ready."""
    folder = tmp_path / "vendored"
    folder.mkdir()
    package(folder, "harmless", "", "")
    package(folder, "provider", "int *ready; static int number = 1;", "ready = &number;", WITH_GLOBAL)
    package(folder, "needs", "", "extern int *ready; if (*ready != 1) return 0;")
    library = next((folder / "provider").glob("_core*"))
    (folder / "needs" / "__init__.py").write_text(
        f"import ctypes\nctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)\nfrom . import _core\n"
    )
    source = script(
        tmp_path, "import sys\nsys.path.insert(0, 'vendored')\nimport harmless\nimport needs\nimport provider\n"
    )
    document, _ = confirmed(tmp_path, sys.executable, source)
    found = verdict(document)
    assert (found.rule, found.status) == ("conflicting-libraries", "confirmed")
    assert rows(found)["import needs"].means == "it dies without any other package"
    assert rows(found)["import provider; import needs"].crashed == 0
    assert [one.command for one in found.fixes if one.verified] == ["import provider"]


@linux
@compiler
def test_what_dies_alone_is_no_conflict(packages: Path) -> None:
    package(packages, "broken", "", "*(volatile int *)0 = 1;")
    source = script(packages, "import gamma, alpha\nimport delta\nimport broken\n")
    document, _ = confirmed(packages, sys.executable, source)
    found = verdict(document)
    assert found.rule != "conflicting-libraries"
    alone = rows(found)["import broken"]
    assert alone.crashed
    assert alone.means == "it dies without any other package"
    assert not any(one.rule == "conflicting-libraries" for one in document.reports[0].alternatives)


@linux
@compiler
def test_a_death_after_the_imports_is_told_by_the_order_of_the_program(packages: Path) -> None:
    package(packages, "late", BETA, "", "from . import _core\n\ndef use():\n    import late.second\n")
    folder = packages / "late"
    (folder / "second.py").write_text(
        "import ctypes, glob, os\n"
        "library = ctypes.PyDLL(glob.glob(os.path.join(os.path.dirname(__file__), '_core*.so'))[0])\n"
        "library.call_it()\n"
    )
    (folder / "core.c").write_text(
        MODULE % (BETA + "int call_it(void) { return ((int (**)(void))shared_table())[0](); }", "")
    )
    include = sysconfig.get_paths()["include"]
    library = folder / ("_core" + sysconfig.get_config_var("EXT_SUFFIX"))
    subprocess.run(
        ["gcc", "-w", "-shared", "-fPIC", f"-I{include}", "-o", str(library), str(folder / "core.c")], check=True
    )
    source = script(packages, "import alpha, late\nlate.use()\n")
    document, _ = confirmed(packages, sys.executable, source)
    found = verdict(document)
    assert (found.rule, found.status) == ("conflicting-libraries", "confirmed")
    assert rows(found)["2 imports alone, in the program's order"].crashed == 0
    assert [one.command for one in found.fixes if one.verified] == ["import late"]


@given(st.integers(1, 24), st.data())
def test_the_least_list_is_found(many: int, data: st.DataObject) -> None:
    names = [f"m{number}" for number in range(many)]
    guilty = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    found = minimal(names, lambda some: set(guilty) <= set(some))
    assert found == tuple(name for name in names if name in guilty)
