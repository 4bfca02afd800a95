"""The first piece of advice on threads, the GIL, and what a sanitizer found: followed, as in test_advice.py."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from following import first, plain
from live import compiled, library, python, report_of, reports_of_standing

import needs

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="the programs need gcc"),
]

LOCKS = """
    #include <pthread.h>
    static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
    static pthread_barrier_t both;
    static void *other(void *unused) {
    #ifdef FOLLOWED
      pthread_barrier_wait(&both); pthread_mutex_lock(&a); pthread_mutex_lock(&b);
    #else
      pthread_mutex_lock(&b); pthread_barrier_wait(&both); pthread_mutex_lock(&a);
    #endif
      pthread_mutex_unlock(&a); pthread_mutex_unlock(&b);
      return unused;
    }
    int main(void) {
      pthread_t thread;
      pthread_barrier_init(&both, 0, 2);
      pthread_create(&thread, 0, other, 0);
      pthread_mutex_lock(&a); pthread_barrier_wait(&both); pthread_mutex_lock(&b);
      pthread_mutex_unlock(&b); pthread_mutex_unlock(&a);
      return pthread_join(thread, 0);
    }
"""


def test_locks_in_the_same_order(tmp_path: Path) -> None:
    program = compiled(LOCKS, tmp_path / "program", "-pthread")
    (report,) = reports_of_standing([str(program)], tmp_path)
    first(report, "hang", "Take these locks in the same order in every thread")
    assert plain([str(compiled(LOCKS, tmp_path / "program", "-pthread", "-DFOLLOWED"))], tmp_path).returncode == 0


GIL = """
    #include <Python.h>
    #include <pthread.h>
    static void *report(void *unused) {
      {take}
      {call}
      {give}
      return unused;
    }
    void start(void) {
      pthread_t thread;
      PyThreadState *state = PyEval_SaveThread();
      pthread_create(&thread, 0, report, 0); pthread_join(thread, 0);
      PyEval_RestoreThread(state);
    }
"""


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("python-without-gil", 'PyErr_SetString(PyExc_ValueError, "x"); PyErr_Clear();'),
        (
            "python-fatal-error",
            "Py_DECREF(PyThreadState_GetDict() ? Py_None : Py_None); PyEval_RestoreThread(PyEval_SaveThread());",
        ),
    ],
)
def test_take_the_gil(rule: str, call: str, tmp_path: Path) -> None:
    def built(take: str, give: str) -> list[str]:
        source = GIL.replace("{take}", take).replace("{give}", give).replace("{call}", call)
        path = library(source, tmp_path, f"-I{sysconfig.get_paths()['include']}")
        return python(f"import ctypes; ctypes.PyDLL({str(path)!r}).start()")

    first(report_of(built("", ""), tmp_path), rule, "PyGILState_Ensure")
    taken = built("PyGILState_STATE had = PyGILState_Ensure();", "PyGILState_Release(had);")
    assert plain(taken, tmp_path).returncode == 0


SUM = """
    #include <pthread.h>
    #include <limits.h>
    #ifdef FOLLOWED
    static _Atomic int count;
    static long next(int number) { return number + 1L; }
    #else
    static int count;
    static long next(int number) { return number + 1; }
    #endif
    static void *add(void *unused) { for (int i = 0; i < 1000; i++) count++; return unused; }
    int main(int words, char **unused) {
      pthread_t one, two;
      pthread_create(&one, 0, add, 0); pthread_create(&two, 0, add, 0);
      pthread_join(one, 0); pthread_join(two, 0);
      (void)unused;
      return next(INT_MAX - 1 + words) == 0;
    }
"""


@pytest.mark.parametrize(
    ("kind", "rule", "says"),
    [
        pytest.param("thread", "data-race", "make the variable atomic", marks=needs.sanitizer("thread")),
        pytest.param(
            "undefined",
            "sanitizer-report",
            r"first frame of the report .*program\.c:9",
            marks=needs.sanitizer("undefined"),
        ),
    ],
)
def test_what_a_sanitizer_found(kind: str, rule: str, says: str, tmp_path: Path) -> None:
    flags = (f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-pthread", "-DSANITIZED")
    program = compiled(SUM, tmp_path / "program", *flags)
    command = ["setarch", "-R", str(program)]
    assert plain(command, tmp_path).returncode != 0
    first(report_of(command, tmp_path), rule, says)
    compiled(SUM, tmp_path / "program", *flags, "-DFOLLOWED")
    assert plain(command, tmp_path).returncode == 0
