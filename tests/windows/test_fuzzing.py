"""``necropsy fuzz`` on a Python function in a Windows CPython under wine: real workers die, and one test is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wine

pytestmark = wine.needed

BINDINGS = """
import ctypes

libc = ctypes.CDLL("msvcrt")
libc.strlen.argtypes = [ctypes.c_void_p]


def length(at: int) -> int:
    if at < 0:
        raise ValueError(f"{at} is negative")
    return libc.strlen(at) if 7 <= at < 16 else at
"""
PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path
here = Path(__file__).parent
os.chdir(here)
from necropsy import fuzzing, serialize
from necropsy.errors import NecropsyError
from necropsy.fuzz.corpus import Corpus
from necropsy.fuzz.definitions import python_function
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.spawned_engine import SpawnedEngine

def code(text): return "(lambda **_given: __import__('builtins').exec(%r))" % text
def told(ends):
    return [[one.kind, one.death and [one.death.signature, one.death.signal, one.death.caught]] for one in ends]

wanted = {"module": str(here / "bindings.py"), "function": "length", "folder": str(here)}
engine = SpawnedEngine(sys.executable, wanted, Limits(seconds=2))
found = {
    "caught": told(engine.run([("target", "at=5"), ("target", "at=-1"), ("target", "at=8"), ("target", "at=5")])),
    "own": told(engine.run([(code("import faulthandler; faulthandler._read_null()"), "")])),
    "aborted": told(engine.run([(code("import os; os.abort()"), "")])),
    "late": told(engine.run([(code("while True: pass"), "")])),
    "again": told(engine.run([("target", "at=5")])),
}
engine.close()
for name, target, options in (("op", "tf.raw_ops.Abs", {}), ("jobs", "bindings.py:length", {"jobs": 2})):
    try:
        fuzzing.fuzz(target, **options)
    except NecropsyError as error:
        found[name] = str(error)
document = fuzzing.fuzz("bindings.py:length", calls=12, budget=600, corpus="corpus").document
Path("document.json").write_bytes(serialize.dumps(document))
run = "import runpy, sys; runpy.run_path(sys.argv[1])['test_length']()"
def passes():
    done = subprocess.run([sys.executable, "-c", run, "tests/fuzz/test_length.py"], capture_output=True, text=True)
    return [done.returncode, done.stderr.strip().rpartition(chr(10))[2]]
kept = SpawnedEngine(sys.executable, wanted)
op = python_function(kept.offered["function"])
kept.close()
found["kept"] = len(Corpus(Path("corpus")).recipes(op))
found["fails"] = passes()
fixed = Path("bindings.py").read_text().replace("if 7 <=", "if 16 <=")
Path("bindings.py").write_text(fixed)
found["fixed"] = passes()
print(json.dumps(found))
"""
AV = 0xC0000005


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "bindings.py").write_text(BINDINGS)
    (folder / "program.py").write_text(PROGRAM)
    done = wine.run(wine.python(), wine.windows_path(folder / "program.py"))
    assert done.code32 == 0, done
    return json.loads(done.stdout.splitlines()[-1]), json.loads((folder / "document.json").read_bytes())


def test_a_death_costs_one_call(ran: tuple[dict[str, Any], dict[str, Any]]) -> None:
    found, _ = ran
    lethal = [
        f"status 0xC0000005 bindings.py:{BINDINGS[: BINDINGS.index('return libc')].count(chr(10)) + 1}",
        "SIGSEGV",
    ]
    assert found["caught"] == [["accepted", None], ["refused", None], ["died", [*lethal, AV]]]
    ((kind, own),) = found["own"]
    assert (kind, own[1], own[2]) == ("died", "SIGSEGV", None)
    ((kind, aborted),) = found["aborted"]
    assert (kind, aborted[1]) == ("died", "SIGABRT")
    assert found["late"] == [["slow", None]]
    assert found["again"] == [["accepted", None]]


def test_what_ctypes_catches_is_a_finding(ran: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """With the function that died, since the process under ``necropsy run`` dies where it reads."""
    found, document = ran
    (finding,) = document["fuzz"]["findings"]
    assert finding["rule"] in {"null-dereference", "invalid-read"}
    assert finding["culprit"]["python"]["function"] == "length" or "strlen" in finding["summary"]
    assert 7 <= finding["call"]["attributes"]["at"] < 16
    assert finding["reproduced"] == {"runs": 5, "crashed": 5}
    assert [gap["part"] for gap in document["gaps"]] == ["fuzz without fork"]
    assert found["fails"][0] == 1 and "OSError: exception: access violation reading" in found["fails"][1]
    assert found["fixed"] == [0, ""]
    assert found["kept"] > 1


def test_what_needs_linux_is_refused(ran: tuple[dict[str, Any], dict[str, Any]]) -> None:
    found, _ = ran
    assert "on Linux only" in found["op"]
    assert "on Linux only" in found["jobs"]
