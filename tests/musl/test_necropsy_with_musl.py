"""necropsy in a Python that is linked with musl, as on Alpine: installed with pip from its wheel for musl."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import musl_python
import pytest

pytestmark = [
    pytest.mark.skipif(
        musl_python.PLACE not in os.environ, reason="`make test-musl` builds a Python, which takes minutes"
    ),
    pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="musl-gcc is not installed"),
]

LIBRARY = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
int read_null(int *p) { return *p; }
void give_up(void) { abort(); }
static int dig(int n) { volatile char room[200]; room[0] = n; return dig(n + 1) + room[0]; }
static void *run(void *unused) { dig(0); return unused; }
void in_thread(void) { pthread_t one; pthread_create(&one, 0, run, 0); pthread_join(one, 0); }
void on_main_thread(void) { dig(0); }
void overrun(int n) { char room[16]; memset(room, 'A', n); __asm__ volatile("" : : "r"(room) : "memory"); }
void clear(long n) { memset((void *)8, 0, n); }
void clear_rows(void) { clear(100); }
"""
SCRIPT = """import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
def call():
    getattr(library, sys.argv[2])(*map(int, sys.argv[3:]))
call()
"""
CONTAINED = """import ctypes, necropsy
def read(n):
    if n == 3:
        ctypes.string_at(0)
    return n * 2
with necropsy.Contained() as pool:
    for n in (1, 3, 4):
        try:
            print(pool.call(read, n))
        except necropsy.Crashed as error:
            print(type(error).__name__, error)
"""
DEATHS = (
    ("read_null 0", signal.SIGSEGV, ("null-dereference", "`read_null` read through a null pointer", "died.py:4")),
    ("clear 100", signal.SIGSEGV, ("null-dereference", "`clear` wrote through a null pointer", "died.py:4")),
    ("clear_rows", signal.SIGSEGV, ("null-dereference", "`clear` wrote through a null pointer")),
    ("give_up", signal.SIGABRT, ("abort", "`give_up` ended the program by abort()")),
    ("overrun 64", signal.SIGSEGV, ("stack-smash", "`overrun` wrote past the end of one of its local arrays")),
    ("on_main_thread", signal.SIGSEGV, ("stack-overflow-recursion", "`dig` called itself", "8 MiB stack")),
    ("in_thread", signal.SIGSEGV, ("stack-overflow-recursion", "`dig` called itself", "128 KiB unless they ask")),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of the virtual environment; in the folder above it, what dies."""
    folder = tmp_path_factory.mktemp("musl")
    found = musl_python.with_necropsy(musl_python.made(), folder)
    (found.parent / "died.py").write_text(SCRIPT)
    (found.parent / "died.c").write_text(LIBRARY)
    words = ["musl-gcc", "-g", "-O0", "-fno-builtin", "-fstack-protector-strong", "-shared", "-fPIC", "died.c"]
    subprocess.run([*words, "-o", "died.so"], cwd=found.parent, check=True)
    return found


def ran(programs: Path, *words: str) -> tuple[int, str]:
    """How ``necropsy WORDS`` ended, and all that it and its command wrote, in one line."""
    environment = {**os.environ, "XDG_STATE_HOME": str(programs.parent / "state"), "NO_COLOR": "1"}
    command = [str(programs / "necropsy"), *words]
    done = subprocess.run(
        command, cwd=programs.parent, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.mark.parametrize(("how", "signo", "says"), DEATHS, ids=[how for how, *_ in DEATHS])
def test_a_death_is_told(programs: Path, how: str, signo: signal.Signals, says: tuple[str, ...]) -> None:
    status, report = ran(
        programs, "run", "--full", "--", str(programs / "python3"), "died.py", "./died.so", *how.split()
    )
    assert status == -signo
    for one in says:
        assert one in report


def test_the_last_words_are_read_along(programs: Path) -> None:
    code = "import os, sys; print('out of rows', file=sys.stderr, flush=True); os.abort()"
    said = programs.parent / "said.json"
    words = ["run", "--log", "tap", "--json", str(said), "--", str(programs / "python3"), "-c", code]
    assert ran(programs, *words)[0] == -signal.SIGABRT
    (report,) = json.loads(said.read_text())["reports"]
    assert "out of rows" in report["crash"]["log_tail"]


def test_calls_are_contained(programs: Path) -> None:
    (programs.parent / "contained.py").write_text(CONTAINED)
    environment = {**os.environ, "XDG_STATE_HOME": str(programs.parent / "state")}
    command = [str(programs / "python3"), "contained.py"]
    done = subprocess.run(command, cwd=programs.parent, env=environment, check=True, capture_output=True, text=True)
    first, crashed, last = done.stdout.splitlines()
    assert (first, last) == ("2", "8")
    assert crashed.startswith("Crashed ")
    assert "read through a null pointer" in crashed


def test_what_is_written_in_c_is_in_use(programs: Path) -> None:
    status, report = ran(programs, "doctor", "--no-probe")
    assert status in {0, 1}, report
    assert "the native launcher is in use" in report
    assert "the C loop is in use" in report
    assert "drgn is missing" in report


def test_the_guard_is_refused(programs: Path) -> None:
    status, report = ran(programs, "run", "--guard", "--", "/bin/true")
    assert status == 125
    assert report.strip() == "necropsy: --guard needs glibc: it has not been tested with another C library"
