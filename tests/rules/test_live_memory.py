"""Errors of memory, real ones: under the sanitizers, off the end of the heap, through freed blocks, in code without a file."""

from __future__ import annotations

import sys
from pathlib import Path

from live import compiled, library, python, report_of, reports_of, told, verdict_of

import needs

PAST_THE_END = """
    #include <stdlib.h>
    __attribute__((noinline)) void fill(volatile int *block, long count) {
      for (long i = 0; i < count; i++) block[i] = (int)i;
    }
    int main(void) { int *block = malloc(10 * sizeof(int)); fill(block, 11); free(block); return 0; }
"""
FREED = """
    #include <stdlib.h>
    struct node { struct node *volatile next; int value; };
    __attribute__((noinline)) int visit(struct node *node) { return node->next->value; }
    int main(void) { struct node *node = malloc(sizeof *node); node->next = node; free(node); return visit(node); }
"""
RACE = """
    #include <pthread.h>
    static int count;
    static void *add(void *unused) { for (int i = 0; i < 1000; i++) count++; return unused; }
    int main(void) {
      pthread_t one, two;
      pthread_create(&one, 0, add, 0); pthread_create(&two, 0, add, 0);
      pthread_join(one, 0); pthread_join(two, 0);
      return 0;
    }
"""
OVERFLOW = """
    #include <limits.h>
    __attribute__((noinline)) int next(int number) { return number + 1; }
    int main(int count, char **words) { (void)words; return next(INT_MAX - 1 + count) == 0; }
"""


def sanitized(source: str, folder: Path, kind: str, *flags: str) -> Path:
    return compiled(source, folder / "program", f"-fsanitize={kind}", *flags)


@needs.sanitizer("address")
def test_address_sanitizer_overflow(tmp_path: Path) -> None:
    report = report_of([str(sanitized(PAST_THE_END, tmp_path, "address"))], tmp_path)
    assert verdict_of(report) == ("heap-buffer-overflow", "certain")
    culprit = report["verdict"]["culprit"]
    assert (culprit["function"], culprit["line"]) == ("fill", 4)


@needs.sanitizer("address")
def test_address_sanitizer_freed(tmp_path: Path) -> None:
    report = report_of([str(sanitized(FREED, tmp_path, "address"))], tmp_path)
    assert verdict_of(report) == ("use-after-free", "certain")
    assert report["verdict"]["culprit"]["function"] == "visit"


@needs.sanitizer("undefined")
def test_undefined_behaviour(tmp_path: Path) -> None:
    program = sanitized(OVERFLOW, tmp_path, "undefined", "-fno-sanitize-recover=all")
    report = report_of([str(program)], tmp_path)
    assert verdict_of(report)[0] == "sanitizer-report"
    assert "program.c:3" in report["verdict"]["summary"]


@needs.sanitizer("thread")
def test_thread_sanitizer(tmp_path: Path) -> None:
    program = sanitized(RACE, tmp_path, "thread", "-pthread")
    report = report_of(["setarch", "-R", str(program)], tmp_path)
    assert verdict_of(report) == ("data-race", "certain")
    assert report["verdict"]["culprit"]["function"] == "add"


# ---------------------------------------------------------------- without any help


def test_off_the_end_of_the_heap(tmp_path: Path) -> None:
    program = compiled(PAST_THE_END.replace("11", "1L << 40"), tmp_path / "program")
    report = report_of([str(program)], tmp_path)
    assert verdict_of(report) == ("heap-buffer-overflow", "likely")
    assert "[heap]" in told(report)
    assert report["verdict"]["culprit"]["function"] == "fill"


def test_a_bad_index_is_not_the_end_of_the_heap(tmp_path: Path) -> None:
    program = compiled(PAST_THE_END.replace("block[i]", "block[i + (1L << 32)]"), tmp_path / "program")
    assert verdict_of(report_of([str(program)], tmp_path))[0] == "invalid-write"


def test_through_a_freed_block(tmp_path: Path) -> None:
    program = compiled(FREED, tmp_path / "program", "-fno-builtin", "-Wno-use-after-free")
    report = report_of([str(program)], tmp_path)
    assert verdict_of(report) == ("use-after-free", "likely")
    assert "[heap]" in told(report)
    assert report["verdict"]["culprit"]["function"] == "visit"


def test_past_the_end_by_pythons_debugging_allocator(tmp_path: Path) -> None:
    code = """
        import ctypes
        api = ctypes.pythonapi
        api.PyMem_Malloc.restype = ctypes.c_void_p
        block = api.PyMem_Malloc(ctypes.c_size_t(10))
        ctypes.memset(block, 1, 12)
        api.PyMem_Free(ctypes.c_void_p(block))
    """
    report = report_of(["env", "PYTHONMALLOC=debug", *python(code)], tmp_path)
    assert verdict_of(report) == ("heap-buffer-overflow", "certain")


def test_code_that_lies_in_no_file(tmp_path: Path) -> None:
    code = """
        import ctypes, mmap
        memory = mmap.mmap(-1, 4096, prot=7)
        memory.write(bytes.fromhex("554889e58b0425000000005dc3"))  # mov eax, [0]
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
    """
    report = report_of(python(code), tmp_path)
    assert verdict_of(report)[0] == "null-dereference"
    assert "generated at run time" in told(report)


# ---------------------------------------------------------------- loading and forks


def test_static_tls(tmp_path: Path) -> None:
    source = """
        static __thread char large[1 << 20] __attribute__((tls_model("initial-exec")));
        char *get(int index) { return &large[index]; }
    """
    path = library(source, tmp_path)
    report = report_of(python(f"import ctypes; ctypes.CDLL('{path}')"), tmp_path)
    assert verdict_of(report) == ("static-tls-exhausted", "certain")
    assert "native.so" in report["verdict"]["summary"]


def test_op_of_another_tensorflow(tmp_path: Path) -> None:
    source = """
        extern void name(void) __asm__("_ZN10tensorflow8OpKernel11TraceStringB5cxx11ERKNS_15OpKernelContextEb");
        void compute(void) { name(); }
    """
    path = library(source, tmp_path)
    report = report_of(python(f"import ctypes, os; ctypes.CDLL('{path}', os.RTLD_NOW)"), tmp_path)
    assert verdict_of(report) == ("op-abi-mismatch", "certain")


def test_the_threads_at_a_fork_are_remembered(tmp_path: Path) -> None:
    code = f"""
        import ctypes, os, subprocess, threading
        stop = threading.Event()
        threading.Thread(target=stop.wait).start()
        child = os.fork()
        if not child:
            ctypes.string_at(0)
        os.waitpid(child, 0)
        subprocess.run([{sys.executable!r}, "-c", "import ctypes; ctypes.string_at(0)"])
        stop.set()
        open("child", "w").write(str(child))
    """
    reports = reports_of(python(code), tmp_path)
    forked = int((tmp_path / "child").read_text())
    threads = {report["pid"] == forked: report["crash"]["forked_from_threads"] for report in reports}
    assert threads == {True: 2, False: None}
