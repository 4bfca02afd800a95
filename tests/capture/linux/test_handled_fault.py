"""A handler took the fault and sent the signal again, and nobody had watched: as a core shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Fault

SOURCE = """
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char how;
static sigjmp_buf back;
static volatile int one = 1, zero;
static void plain(int s) {
    if (how == 'j') siglongjmp(back, 1);
    signal(s, SIG_DFL);
    if (how == 'a') abort();
    raise(s);
}
static void informed(int s, siginfo_t *i, void *c) { plain(s); }
static void fault(char what) {
    if (what == 'n') *(volatile int *)8 = 1;
    if (what == 'r') *(volatile char *)"constant" = 1;
    if (what == 'w') *(volatile int *)0x4141414141414141 = 1;
    if (what == 'd') one /= zero;
    if (what == 'u') __builtin_trap();
    if (what == 'c') ((void (*)(void))16)();
}
static void deeper(void) {
    volatile char never_written[20000];
    never_written[0] = 0;
    raise(SIGSEGV);
}
int main(int argc, char **argv) {
    how = argv[1][0];
    struct sigaction a;
    memset(&a, 0, sizeof a);
    if (argv[1][1] == 'i') a.sa_sigaction = informed; else a.sa_handler = plain;
    a.sa_flags = SA_NODEFER | SA_ONSTACK | (argv[1][1] == 'i' ? SA_SIGINFO : 0);
    if (argv[1][2] == 'o') {
        stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
        sigaltstack(&other, 0);
    }
    int all[] = {SIGSEGV, SIGFPE, SIGILL};
    for (int at = 0; at < 3; at++) sigaction(all[at], &a, 0);
    if (!sigsetjmp(back, 1)) fault(argv[1][3]);
    for (int at = 0; at < 3; at++) signal(all[at], SIG_DFL);
    deeper();
}
"""
EXPECTED = {
    "n": ("SIGSEGV", "SEGV_MAPERR", 8),
    "r": ("SIGSEGV", "SEGV_ACCERR", None),
    "w": ("SIGSEGV", "SI_KERNEL", None),
    "d": ("SIGFPE", "FPE_INTDIV", None),
    "u": ("SIGILL", "ILL_ILLOPN", None),
    "c": ("SIGSEGV", "SEGV_MAPERR", 16),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("handled"), SOURCE, "-O0", "-g")


def fault_of(program: Path, word: str) -> tuple[Fault, str | None]:
    with dying([program, word]) as death:
        crash = crash_builder.capture(replace(death, first_chance=None))
    assert crash.fault is not None
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    named = (frame.function for frame in crash.crashed_thread.frames if frame.function in {"fault", "deeper"})
    return crash.fault, next(named, None)


@pytest.mark.parametrize("what", EXPECTED)
@pytest.mark.parametrize("stack", ["other", "same"])
@pytest.mark.parametrize("handler", ["informed", "plain"])
def test_the_fault_that_a_handler_sent_again(program: Path, handler: str, stack: str, what: str) -> None:
    fault, function = fault_of(program, f"r{handler[0]}{stack[0]}{what}")
    signo, code, address = EXPECTED[what]
    assert (fault.signal, fault.handled_first) == (signo, True)
    # The operand of an invalid instruction, or its code: only the kernel's own words tell.
    assert fault.code == code or (what == "u" and (fault.code or "").startswith("ILL_"))
    assert address is None or fault.address == address
    assert function == "fault"


@pytest.mark.parametrize("stack", ["other", "same"])
@pytest.mark.parametrize("handler", ["informed", "plain"])
def test_a_handler_that_aborts(program: Path, handler: str, stack: str) -> None:
    fault, function = fault_of(program, f"a{handler[0]}{stack[0]}n")
    assert (fault.signal, fault.address, fault.handled_first) == ("SIGSEGV", 8, True)
    assert function == "fault"


@pytest.mark.parametrize("stack", ["other", "same"])
@pytest.mark.parametrize("handler", ["informed", "plain"])
def test_a_fault_that_was_survived_is_not_the_cause(program: Path, handler: str, stack: str) -> None:
    """The handler jumped out, and the kernel's record lies below what runs now, in an array without content."""
    fault, function = fault_of(program, f"j{handler[0]}{stack[0]}n")
    assert (fault.signal, fault.code, fault.handled_first) == ("SIGSEGV", "SI_TKILL", False)
    assert function == "deeper"
