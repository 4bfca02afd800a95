"""The first piece of advice is followed: a program dies, does what the report says, and lives or shows its cause.

``native``: crashers/advice.cc, which compiles to the program that dies and to the one that follows the advice. The
others follow what is printed: its command is run as it stands, with the program where it says ``python ...``.
"""

from __future__ import annotations

import opcode
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from following import first, instead, plain
from live import compiled, library, python, report_of, verdict_of

import needs
from necropsy.explanation import explain
from necropsy.rules import crash_rules

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="the programs need gcc and g++"),
]
SOURCE = Path(__file__).parent.parent / "crashers" / "advice.cc"
FLAGS = ("-O1", "-std=c++17", "-w", "-pthread", "-fstack-protector-all", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2")

NATIVE = {
    "null-dereference": r"pointer that can be null in `weight` \(the member at offset 8",
    "invalid-read": r"In `element`, check for an out-of-range index",
    "invalid-write": r"In `fill`, compare the index",
    "write-to-readonly": r"Let `upper` write to a copy",
    "bad-jump": r"In `notify`, check the function pointer before it is called",
    "misaligned-access": r"In `add`, use unaligned loads .*_mm_loadu_ps",
    "integer-divide-by-zero": r"In `steps`, check the divisor",
    "floating-point-trap": r"look in `mean` for a divisor of 0",
    "deliberate-trap": r"Look in `kind` for a path",
    "illegal-instruction": r"Install a build for this processor",
    "stack-overflow-recursion": r"Make `depth` \(advice\.cc:\d+\) a loop",
    "stack-overflow-large-frame": r"In `table`, put the large array on the heap",
    "stack-smash": r"Check every index and length used with the local arrays of `copy_name`",
    "buffer-overflow-fortify": r"In `copy_block`, compare the length",
    "heap-corruption": r"the size that was allocated with the number of elements that are written",
    "double-free": r"Find the other code that frees what `release` frees",
    "heap-buffer-overflow": r"Compare the size that was allocated",
    "use-after-free": r"Find who freed the object that `visit` works on",
    "bus-error": r"write a new file and rename it",
    "assertion-failed": r"input for which `columns > 0` is false, and check it before the call",
    "uncaught-cpp-exception": r"an index or key was out of range: check it before the call",
    "allocation-failed": r"Check whether the requested size or shape",
    "pure-virtual-call": r"Stop and join the threads that use the object before it is destroyed",
    "abort": r"Join or detach every std::thread",
}
"""Rule to the words of its first advice that the program follows."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program that dies, and the one that follows the advice."""
    folder = tmp_path_factory.mktemp("advice")
    for name, flags in (("dies", ()), ("lives", ("-DFOLLOWED",))):
        subprocess.run(["g++", "-g", *FLAGS, *flags, str(SOURCE), "-o", str(folder / name)], check=True)
    return folder / "dies", folder / "lives"


@pytest.mark.parametrize("rule", NATIVE)
def test_native(rule: str, native: tuple[Path, Path], tmp_path: Path) -> None:
    dies, lives = native
    first(report_of([str(dies), rule], tmp_path), rule, NATIVE[rule])
    done = plain([str(lives), rule], tmp_path)
    assert done.returncode == 0, done


# ---------------------------------------------------------------- what is printed is run

TABLE = """
    #include <string.h>
    __attribute__((noinline)) void table(void) { volatile char rows[900 << 10]; memset((void *)rows, 1, sizeof rows); }
"""
ON_A_THREAD = """
    import ctypes, threading
    table = ctypes.CDLL({library!r}).table
    threading.stack_size(256 << 10)
    {advice}
    thread = threading.Thread(target=table)
    thread.start()
    thread.join()
"""


def test_small_stack(tmp_path: Path) -> None:
    path = str(library(TABLE, tmp_path, "-O0"))
    report = report_of(python(ON_A_THREAD.format(library=path, advice="")), tmp_path)
    line = first(report, "stack-overflow-small-stack", "larger thread stack size before this thread starts")
    done = plain(python(ON_A_THREAD.format(library=path, advice=line)), tmp_path)
    assert done.returncode == 0, done


def test_openmp_threads(tmp_path: Path) -> None:
    program = compiled(
        "int main(void) { int n = 0;\n#pragma omp parallel reduction(+:n)\nn++;\nreturn n == 0; }",
        tmp_path / "program",
        "-fopenmp",
    )
    few = ["sh", "-c", 'ulimit -v 500000; exec "$@"', "sh"]
    many = ["env", "OMP_NUM_THREADS=2000", str(program)]
    report = report_of(many, tmp_path, before=["sh", "-c", 'ulimit -v 2000000; exec "$@"', "sh"])
    line = first(report, "thread-limit", "Start fewer threads")
    assert plain([*few, *many], tmp_path).returncode != 0
    settings = line.removesuffix(" python ...").split()
    assert plain([*few, "env", *settings, str(program)], tmp_path).returncode == 0


def test_file_limit(tmp_path: Path) -> None:
    write = ["dd", "if=/dev/zero", "of=large", "bs=64k", "count=4"]
    limit = 'ulimit {0} 100; exec "$@"'
    report = report_of(write, tmp_path, before=["sh", "-c", limit.format("-S -f"), "sh"])
    line = first(report, "cpu-or-file-limit", "raise it")
    assert plain(["sh", "-c", f"ulimit -S -f 100; {line}"], tmp_path).stdout.strip() == "100"
    assert plain(["sh", "-c", f'ulimit -S -f 100; {line} unlimited; exec "$@"', "sh", *write], tmp_path).returncode == 0


def test_missing_library(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    library("int one(void) { return 1; }", tmp_path / "far").rename(tmp_path / "far" / "libfaraway.so")
    load = python("import ctypes; ctypes.CDLL('libfaraway.so').one()")
    line = first(report_of(load, tmp_path), "missing-library", "name its folder before Python starts")
    line = line.replace("/folder/of/it", str(tmp_path / "far"))
    assert plain(["sh", "-c", f'{line}; exec "$@"', "sh", *load], tmp_path).returncode == 0


def test_undefined_symbol(tmp_path: Path) -> None:
    source = "int far_away(void); int one(void) { return far_away(); }"
    (tmp_path / "other").mkdir()
    other = library("int far_away(void) { return 1; }", tmp_path / "other")
    path = library(source, tmp_path)
    load = python(f"import ctypes, os; ctypes.CDLL({str(path)!r}, mode=os.RTLD_NOW).one()")
    line = first(report_of(load, tmp_path), "undefined-symbol", "library that defines `far_away`, and link .* with it")
    assert "far_away" in plain(["sh", "-c", line.replace("LIBRARY.so", str(other))], tmp_path).stdout
    library(source, tmp_path, str(other))
    assert plain(load, tmp_path).returncode == 0


def test_an_old_runtime_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    versions = tmp_path / "versions"
    versions.write_text("GLIBCXX_3.4 { global: nothing; };")
    library("int nothing;", tmp_path / "old", "-Wl,-soname,libstdc++.so.6", f"-Wl,--version-script={versions}").rename(
        tmp_path / "old" / "libstdc++.so.6"
    )
    path = compiled(
        '#include <string>\nint one() { return std::stoi("1"); }',
        tmp_path / "cxx.so",
        "-shared",
        "-fPIC",
        compiler="g++",
    )
    load = python(f"import ctypes; ctypes.CDLL({str(path)!r})")
    report = report_of(load, tmp_path, before=["env", f"LD_LIBRARY_PATH={tmp_path / 'old'}"])
    line = first(report, "libstdcxx-too-old", "remove its folder from LD_LIBRARY_PATH")
    after = ["env", f"LD_LIBRARY_PATH={tmp_path / 'old'}", "sh", "-c", f'{line}; exec "$@"', "sh", *load]
    assert plain(after, tmp_path).returncode == 0


def test_two_copies_of_a_library(tmp_path: Path) -> None:
    """The second one's call reaches the first one's function, which knows another structure."""
    for name, source in (
        ("one", "struct S { long a; long *p; }; long grow(struct S *s) { return *s->p; }"),
        (
            "two",
            "struct S { long a, b; }; long grow(struct S *s) { return s->a + s->b; } long use(void) { struct S s = {1, 1L << 40}; return grow(&s); }",
        ),
    ):
        (tmp_path / name).mkdir()
        library(source, tmp_path / name, "-O0").rename(tmp_path / name / "libtbb.so")
    second = f"ctypes.CDLL({str(tmp_path / 'two' / 'libtbb.so')!r}).use()"
    both = python(f"import ctypes; ctypes.CDLL({str(tmp_path / 'one' / 'libtbb.so')!r}, ctypes.RTLD_GLOBAL); {second}")
    line = first(report_of(both, tmp_path), "conflicting-libraries", "Keep one copy of libtbb")
    assert plain(["sh", "-c", line], tmp_path).stdout.count("libtbb.so") == 2
    assert plain(python(f"import ctypes; {second}"), tmp_path).returncode == 0


def test_a_timer_of_its_own(tmp_path: Path) -> None:
    code = """
        import signal, time
        def handler(signo, frame): raise SystemExit(0)
        {advice}
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(60)
    """
    report = report_of(python(code.format(advice="")), tmp_path)
    line = first(report, "killed-by-signal", "Handle SIGALRM before the timer is set")
    assert plain(python(code.format(advice=line)), tmp_path).returncode == 0


def test_static_tls(tmp_path: Path) -> None:
    path = library(
        '__thread char block[1 << 16] __attribute__((tls_model("initial-exec"))); char *get(void) { return block; }',
        tmp_path,
    )
    load = python(f"import ctypes; ctypes.CDLL({str(path)!r}).get()")
    line = first(report_of(load, tmp_path), "static-tls-exhausted", "or preload it")
    assert plain(instead(line, load), tmp_path).returncode == 0


def test_a_damaged_object_is_named_by_pythons_checks(tmp_path: Path) -> None:
    """A block that C overran: Python's debugging allocator says which one, where the plain run only dies."""
    overrun = python("""
        import array, ctypes
        api = ctypes.pythonapi
        api.PyMem_Malloc.restype = ctypes.c_void_p
        blocks, kept = array.array("Q"), []
        for one in range(2000):  # in turn, so that an int lies behind each block
            blocks.append(api.PyMem_Malloc(ctypes.c_size_t(32)))
            kept.append(one + 10**6)
        for block in blocks:
            ctypes.memset(block, 0x41, 48)
        print(len(repr(kept)))
        for block in blocks:
            api.PyMem_Free(ctypes.c_void_p(block))
    """)
    line = first(report_of(overrun, tmp_path), "damaged-object", "Let Python check its objects")
    assert "bad trailing pad byte" in plain(instead(line, overrun), tmp_path).stderr


OWN_CODE = """
    def f(): pass
    f.__code__ = f.__code__.replace(co_code=bytes([{load}, 255]) * 4, co_consts=())
    f()
"""


def test_interpreter_bug(tmp_path: Path) -> None:
    report = report_of(python(OWN_CODE.format(load=opcode.opmap["LOAD_CONST"])), tmp_path)
    first(report, "interpreter-bug", r"If it makes code objects itself")
    assert plain(python("def f(): pass\nf()"), tmp_path).returncode == 0


@needs.package("numpy")
def test_the_shape_of_a_view_shows_what_is_wrong(tmp_path: Path) -> None:
    view = """
        import numpy as np
        from numpy.lib.stride_tricks import as_strided
        a = as_strided(np.arange(10.0), shape=(1 << 28,), strides=(4096,))
        {advice}
        print(a.sum())
    """
    line = first(
        report_of(python(view.format(advice="")), tmp_path),
        "invalid-array-view",
        "Print the properties of each of them",
    )
    done = plain(python(view.format(advice=line + "; raise SystemExit")), tmp_path)
    assert done.stdout.startswith("(268435456,) (4096,) float64"), done


def test_python_exception(tmp_path: Path) -> None:
    code = "sizes = {}\ndef size(of): return sizes.get(of, 0) if FOLLOWED else sizes[of]\nsize('x')"
    (tmp_path / "train.py").write_text(f"FOLLOWED = False\n{code}")
    first(report_of([sys.executable, "train.py"], tmp_path), "python-exception", r"Look at \S*train.py:3 in size")
    (tmp_path / "train.py").write_text(f"FOLLOWED = True\n{code}")
    assert plain([sys.executable, "train.py"], tmp_path).returncode == 0


def test_ended_by_its_own_call(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\ndef check(ok):\n    if not ok:\n        os.abort()\ncheck(len(sys.argv) > 1)"
    )
    report = report_of([sys.executable, "train.py"], tmp_path)
    first(report, "ended-by-its-own-call", r"Look at \S*train.py:4 in check: the condition before this call")
    assert plain([sys.executable, "train.py", "ok"], tmp_path).returncode == 0


def test_only_an_exit_status(native: tuple[Path, Path], tmp_path: Path) -> None:
    """A shell's exit code of a death by SIGSEGV: under necropsy, as the advice says, it has its cause."""
    document = explain(["55"], crash_rules).document
    assert document is not None and document.reports[0].verdict is not None
    verdict = document.reports[0].verdict
    assert verdict.rule == "exit-status-only"
    assert verdict.fixes[0].command == "necropsy run python ..."
    hides = ["sh", "-c", '"$@"; exit 55', "sh", str(native[0]), "null-dereference"]
    assert verdict_of(report_of(hides, tmp_path)) == ("null-dereference", "certain")
