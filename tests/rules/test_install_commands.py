"""Commands that repair an environment: the tool that installed the package, for the interpreter in question."""

from __future__ import annotations

import msgspec
import pytest

from environment_sketch import environment
from necropsy.examination import for_its_shell
from necropsy.examine import examine
from necropsy.rules import environment_rules, packages

PIP = "distribution pip 24.0\n"
READER = "distribution reader 1.0 checked\n"


def test_pip_of_the_interpreter_or_the_one_on_path() -> None:
    for text, begins in ((PIP, "/env/bin/python -m pip"), ("", "pip --python /env/bin/python")):
        command = packages.install(environment(READER + text), "numpy<2", "").command
        assert command == f"{begins} install 'numpy<2'"


def test_conda_for_what_conda_installed() -> None:
    found = environment(PIP + "distribution numpy 2.1.0 checked conda\n")
    command = packages.install(found, "numpy<2", "", like=found.distribution("numpy")).command
    assert command == "conda install --prefix /env 'numpy<2'"


def test_conda_knows_no_extras_and_removes_what_it_installed() -> None:
    found = environment(PIP + "distribution tensorflow 2.20.0 checked conda\n")
    like = found.distribution("tensorflow")
    assert packages.install(found, "tensorflow[and-cuda]==2.20.0", "", like=like).command == (
        "conda install --prefix /env tensorflow==2.20.0"
    )
    assert packages.uninstall(found, "tensorflow") == "conda remove --prefix /env --force --yes tensorflow"
    assert packages.uninstall(found, "tensorflow", "pip").startswith("/env/bin/python -m pip uninstall")


def test_commands_for_windows_are_quoted_for_its_shell() -> None:
    found = environment("python 3.11.9 AMD64 win32\n" + PIP + READER)
    assert packages.install(found, "numpy<2,>=1.23", "").command == '/env/bin/python -m pip install "numpy<2,>=1.23"'


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ("variable OMP_NUM_THREADS 0", 'set "OMP_NUM_THREADS="'),
        ("unread CUDA_VISIBLE_DEVICE CUDA_VISIBLE_DEVICES", None),
        (r"shadow reader 'C:\\work folder\\reader.py' C:/env/reader working-directory", None),
    ],
)
def test_variables_and_files_on_windows(more: str, command: str | None) -> None:
    held = environment("python 3.11.9 AMD64 win32\n" + PIP + READER + more)
    found = for_its_shell(examine(held, environment_rules()).findings, held)
    (finding,) = [one for one in found if one.severity != "note"]
    expected = {
        "env-variable-misspelt": 'set "CUDA_VISIBLE_DEVICES=%CUDA_VISIBLE_DEVICE%" & set "CUDA_VISIBLE_DEVICE="',
        "env-module-shadowed": r'move "C:\work folder\reader.py" "C:\work folder\my_reader.py"',
    }
    assert finding.fixes[0].command == (command or expected[finding.rule])


def test_uv_where_there_is_no_pip() -> None:
    found = environment(READER)
    like = msgspec.structs.replace(found.distributions[0], installer="uv") if found.distributions else None
    command = packages.install(found, "numpy<2", "", like=like).command
    assert command == "uv pip install --python /env/bin/python 'numpy<2'"


def test_an_interpreter_that_the_system_manages() -> None:
    found = environment("managed\n" + PIP + READER)
    assert packages.install(found, "a", "").command == "/env/bin/python -m pip install --break-system-packages a"
    assert packages.uninstall(found, "a").endswith("uninstall --yes --break-system-packages a")


@pytest.mark.parametrize(
    ("asked", "together", "possible"),
    [
        (("numpy>=1.20", "numpy>=1.23,<3", "numpy<2"), "<2,>=1.23", True),
        (("numpy>=2", "numpy<=2"), "<=2,>=2", True),
        (("numpy>2", "numpy<=2"), "<=2,>2", False),
        (("numpy==1.26.*", "numpy!=1.26.0"), "!=1.26.0,==1.26.*", True),
        (("numpy==1.26.4", "numpy>=2"), ">=2,==1.26.4", False),
    ],
)
def test_one_specifier_for_all(asked: tuple[str, ...], together: str, possible: bool) -> None:
    rows = "".join(f"distribution p{place} 1.0 checked\nrequires {one}\n" for place, one in enumerate(asked))
    found = packages.together(environment(rows + "distribution numpy 1.0 checked\n"), "numpy")
    assert found == together
    assert packages.is_possible(found) is possible
