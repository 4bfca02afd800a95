"""The crashers again without capabilities and with stderr on a pipe, as an ordinary user runs them: the same verdicts.

Only those whose verdict may rest on what the program wrote: an abort, an exit code, a handler's end; and one of each
kind of fault. The others do not ask for the log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_crashers import ABRT, CASES, SEGV, Case, examine, examined, hold, kept_in, verdict_of

NOBODY = ("--reuid", "65534", "--regid", "65534", "--clear-groups")
WITHOUT_CAPABILITIES = ("--inh-caps=-all", "--bounding-set=-all")
FAULTS = {
    *("null_read", "overwritten-object", "infinite_recursion-1", "big_local", "error_without_gil"),
    *("divide_by_zero-0", "truncated_file", "throw_into_a_trap", "kill-itself", "sent-term", "subprocess", "forked"),
}


def without_rights() -> list[str] | None:
    """What to put before a command to run it so; None where that is not possible.

    Nobody, where nobody may run this Python; it often lies in root's own folder, and then root without capabilities.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    for user in (NOBODY, ()):
        words = ["setpriv", *user, *WITHOUT_CAPABILITIES]
        # By way of a shell: setpriv itself still has the rights to run any file.
        python = ["sh", "-c", '"$@"', "sh", sys.executable, "-c", "import necropsy.cli"]
        if subprocess.run([*words, *python], capture_output=True, check=False).returncode == 0:
            return words
    return None


BEFORE = without_rights()
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="the crashers need gcc and g++"),
    pytest.mark.skipif(BEFORE is None, reason="only root has rights to give up"),
]


def may_differ(case: Case) -> bool:
    by_words = case.ends == ABRT or case.ends > 0
    return case.log == "auto" and (by_words or case.name in FAULTS)


AGAIN = [case for case in CASES if may_differ(case)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user gets to."""
    made = Path(tempfile.mkdtemp(prefix="necropsy-unprivileged-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


def test_every_fault_is_in_the_table() -> None:
    assert {case.name for case in CASES} >= FAULTS
    assert sum(case.ends == SEGV for case in AGAIN) >= 5


@pytest.mark.parametrize("case", AGAIN, ids=lambda case: case.name)
def test_an_ordinary_user_is_told_the_same(
    case: Case, folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = {**os.environ, "HOME": str(folder), "NECROPSY_OUTPUT": str(folder / "reports")}
    document = examine(case, folder, before=BEFORE or (), environment=environment)
    assert document["returncode"] == case.ends
    assert document["complete"]
    found = verdict_of(document)
    weaker = (case.without_log,) if case.without_log else ()
    hold(case, document, weaker)
    told = verdict_of(examined(case, kept_in(tmp_path_factory.getbasetemp()), tmp_path))
    same = (found and found["rule"]) == (told and told["rule"])
    assert same or (found is not None and found["rule"] in weaker), (found, told)
