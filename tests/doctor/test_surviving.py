"""``necropsy doctor`` runs in the environment that it checks, whatever that does to other programs; its exit codes."""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import necropsy.doctor
from doctor_building import OF_THE_MACHINE, Venv, library, needs_compiler
from json_schema import errors
from necropsy import serialize

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and LD_PRELOAD are those of Linux")
MIB = 1 << 20


def doctor(*words: str, limits: Callable[[], None] | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "necropsy", "doctor", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, preexec_fn=limits)


def document(*words: str, **more: Any) -> dict[str, Any]:
    done = doctor("--python", sys.executable, "--no-probe", "--format", "json", *words, **more)
    assert done.returncode in {0, 1}, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of_packages(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in found["findings"] if one["rule"] not in OF_THE_MACHINE]


def limit(number: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(number, (size, size))


def test_a_small_stack_and_little_address_space() -> None:
    for one in (limit(resource.RLIMIT_STACK, 128 << 10), limit(resource.RLIMIT_AS, 1000 * MIB)):
        found = document("pytest", limits=one)
        assert found["kind"] == "doctor"
        assert len(found["passed"]) > 10


@needs_compiler
def test_a_sanitizer_in_ld_preload_is_named_and_does_no_harm() -> None:
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    if "/" not in asan:
        pytest.fail("gcc has no AddressSanitizer here")
    found = document("pytest", LD_PRELOAD=asan.strip())
    assert [one["rule"] for one in of_packages(found)] == ["env-preload"]


@needs_compiler
def test_a_library_that_ends_each_program_does_not_end_doctor_or_the_interpreter(tmp_path: Path) -> None:
    # Those without the variable live; doctor's own first process is started with it, and has to get as far as main.
    built = library(
        tmp_path / "libmine.so", "#include <stdlib.h>\n__attribute__((destructor)) void f(void) { abort(); }"
    )
    assert of_packages(document("pytest", LD_PRELOAD=str(built))) == []


def test_another_pythons_packages_in_pythonpath(tmp_path: Path) -> None:
    for name in ("click", "msgspec", "packaging", "json", "re"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "raise ImportError('of another Python')\n" if name != "json" else ""
        )
    shutil.rmtree(tmp_path / "json")
    shutil.rmtree(tmp_path / "re")
    found = document("packaging", PYTHONPATH=str(tmp_path))
    assert [one["rule"] for one in of_packages(found)] == ["env-module-shadowed"]


@needs_compiler
def test_an_old_cpp_runtime_in_ld_library_path(tmp_path: Path) -> None:
    # Whatever of doctor's own needs the C++ library could not be loaded with this one.
    library(tmp_path / "libstdc++.so.6", "int nothing;", "-Wl,-soname,libstdc++.so.6")
    found = document("pytest", LD_LIBRARY_PATH=str(tmp_path))
    assert of_packages(found) == []
    assert len(found["passed"]) > 10


def test_no_file_can_grow() -> None:
    """As on a full disk: files are still read; the imports, which need a journal, are reported as a gap."""
    words = ("--python", sys.executable, "--format", "json", "pytest")
    done = doctor(*words, limits=limit(resource.RLIMIT_FSIZE, 0), TMPDIR="/dev/shm")
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)
    assert of_packages(found) == []
    assert len(found["passed"]) > 10
    assert any("No usable temporary directory" in one["why"] for one in found["gaps"] if one["part"] == "imports")


SCRIPTS = ("describe_python.py", "import_modules.py")


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_the_interpreter_runs_is_written_for_python_3_6(name: str) -> None:
    ast.parse((Path(necropsy.doctor.__file__).parent / name).read_text(), feature_version=(3, 6))


def old_interpreters() -> list[str]:
    """Pythons of 3.6 to 3.8 that are installed here, on PATH or by pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for minor in (6, 7, 8):
        places = [str(one) for one in sorted(root.glob(f"3.{minor}.*/bin/python"))]
        found += places[:1] or [one for one in (shutil.which(f"python3.{minor}"),) if one is not None]
    return found


@pytest.mark.skipif(not old_interpreters(), reason="no Python of 3.6 to 3.8 here")
def test_old_interpreters_are_examined_too(tmp_path: Path) -> None:
    for place, python in enumerate(old_interpreters()):
        folder = tmp_path / str(place)
        subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
        version = subprocess.run(
            [folder / "bin/python", "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            check=True,
        )
        site = folder / f"lib/python{version.stdout.strip()}/site-packages"
        Venv(folder).install(
            "reader", "1.0", {"reader/__init__.py": "raise ValueError('wrong')\n"}, requires=["other>=2"], to=site
        )
        Venv(folder).install("other", "1.0", to=site)
        done = doctor("--python", str(folder / "bin/python"), "--format", "json", "reader")
        assert done.returncode == 1, done.stderr
        found = json.loads(done.stdout)
        assert [one["rule"] for one in of_packages(found)] == ["env-import-error", "env-package-conflict"]
        assert found["subject"]["text"].startswith(f"CPython {version.stdout.strip()}")


def test_no_home_and_no_room_on_the_disk() -> None:
    assert of_packages(document("pytest", HOME="/nonexistent", TMPDIR="/nonexistent")) == []
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "necropsy", "doctor", "--no-probe", "--python", sys.executable]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 125
    assert done.stderr == "necropsy: cannot write to stdout: No space left on device\n"


def test_the_json_document_is_as_the_schema_says(tmp_path: Path) -> None:
    venv = Venv.make(tmp_path / "env")
    venv.install("reader", "1.0", requires=["other>=2"])
    venv.install("other", "1.0")
    done = doctor("--python", venv.python, "--format", "json", "--json", str(tmp_path / "x.json"), "reader")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "x.json").read_text())
    schema = serialize.json_schema()
    assert errors(found, schema, schema) == []
    (finding,) = of_packages(found)
    assert finding["rule"] == "env-package-conflict"
    assert finding["evidence"][0]["where"].endswith("reader-1.0.dist-info/METADATA")
    assert finding["summary"] in {one.summary for one in serialize.loads(done.stdout.encode()).findings}


def test_one_line_a_finding_and_one_for_the_rest(tmp_path: Path) -> None:
    venv = Venv.make(tmp_path / "env")
    venv.install("reader", "1.0", requires=["other>=2", "third<1"])
    venv.install("other", "1.0")
    venv.install("third", "1.0")
    text = doctor("--python", venv.python, "reader").stdout.splitlines()
    text = [line for line in text if line.rpartition("[")[2].rstrip("]") not in OF_THE_MACHINE]
    words = [line.partition(":")[0] for line in text]
    assert words[:4] == [venv.python, "warning", "warning", "In order"]
    assert set(words[4:]) == {"Supervisor"}
    assert text[1].endswith("install 'other>=2' [env-package-conflict]")
    for form in ("markdown", "html"):
        shown = doctor("--python", venv.python, "--format", form, "reader").stdout
        assert "Requires-Dist: other" in shown
        assert "install &#39;other&gt;=2&#39;" in shown or "install 'other>=2'" in shown


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--python", sys.executable, "--no-probe"), 0),
        (("--python", sys.executable, "not a name"), 2),
        (("--no-such-option",), 2),
        (("--python", "/bin/true"), 65),
        (("--python", __file__), 65),
        (("--python", sys.executable, "--op", __file__), 65),
        (("--python", "/nonexistent/python"), 66),
        (("--python", sys.executable, "--op", "/nonexistent/op.so"), 66),
        (("--python", sys.executable, "no-such-package"), 66),
        (("--python", sys.executable, "--no-probe", "--json", "/nonexistent/x"), 125),
    ],
)
def test_exit_codes(words: tuple[str, ...], code: int) -> None:
    done = doctor(*words, "pip") if code == 0 else doctor(*words)
    assert done.returncode == code, done
    if code:
        assert len(done.stderr.splitlines()) == 1


def test_what_starts_with_every_interpreter_does_not_disturb(tmp_path: Path) -> None:
    venv = Venv.make(tmp_path / "env")
    venv.install("reader", "1.0")
    (venv.site / "noise.pth").write_text("import sys; print('hello'); sys.stdout.write('no end of line')\n")
    assert venv.examine("reader").findings == ()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    document = venv.examine("reader", variables={"PYTHONPATH": str(tmp_path / "mine")})
    assert [gap.part for gap in document.gaps] == ["sys.path", "imports"]
    (venv.site / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    done = doctor("--python", venv.python, "reader")
    assert done.returncode == 65
    assert "it ended with 3" in done.stderr
