"""Programs made of dice that die at the end of a chain of calls, each of another kind than the one before.

What compilers make of a call is what unwinders stumble over: frames of any size and alignment, frame pointers or none,
functions inlined into others, calls that nothing follows, jumps instead of calls, handlers of signals on two stacks,
callbacks through the C library, landing pads of C++.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness import compiler

HEAD = """
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#define REAL __attribute__((noinline))
#define INTO static inline __attribute__((always_inline))
volatile int sink;
int *volatile nowhere;
static void heed(int number, void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags | SA_NODEFER;
  sigaction(number, &action, 0);
}
static void other_stack(void) {
  stack_t other;
  memset(&other, 0, sizeof other);
  other.ss_size = 1 << 20;
  other.ss_sp = malloc(other.ss_size);
  sigaltstack(&other, 0);
}
"""
ENDS = (
    "REAL int f{k}(int n) {{ return *nowhere + n; }}",
    "REAL int f{k}(int n) {{ *nowhere = n; return n; }}",
    "REAL int f{k}(int n) {{ volatile char room[{size}]; room[n % {size}] = 1; return room[0] + sink / (n - n + sink); }}",
    "REAL int f{k}(int n) {{ if (n != -99) abort(); return n; }}",
    "REAL int f{k}(int n) {{ char room[64]; memset(room, n, 64); return strlen((char *)nowhere) + room[n & 63]; }}",
    "REAL int f{k}(int n) {{ raise(SIGTRAP); return n + 1; }}",
    "INTO int i{k}(int n) {{ return *nowhere + n; }} REAL int f{k}(int n) {{ return i{k}(n) + 1; }}",
)
Kind = Callable[[int, random.Random], str]


def _plain(k: int, dice: random.Random) -> str:
    size = dice.choice((1, 8, 24, 100, 4000, 70_000, 300_000))
    return f"REAL int f{k}(int n) {{ volatile char room[{size}]; room[n % {size}] = n; return f{k + 1}(n + 1) + room[0]; }}"


def _alloca(k: int, dice: random.Random) -> str:
    size = dice.choice((16, 1000, 100_000))
    return (
        f"REAL int f{k}(int n) {{ volatile char *room = (volatile char *)alloca({size} + (n & 63)); room[n & 15] = n;"
        f" return f{k + 1}(n + 1) + room[1]; }}"
    )


def _aligned(k: int, dice: random.Random) -> str:
    return (
        f"REAL int f{k}(int n) {{ __attribute__((aligned({dice.choice((32, 64, 256))}))) volatile char room[64];"
        f" room[n & 63] = n; return f{k + 1}(n + 1) + room[0]; }}"
    )


def _aligned_alloca(k: int, _: random.Random) -> str:
    return (
        f"REAL int f{k}(int n) {{ __attribute__((aligned(64))) volatile char room[64]; room[n & 63] = n;"
        f" volatile char *more = (volatile char *)alloca(n & 63); return f{k + 1}(n + 1) + room[0] + (more != 0); }}"
    )


def _registers(k: int, _: random.Random) -> str:
    lines = "".join(f"int v{at} = sink + {at};" for at in range(8))
    total = "+".join(f"v{at}" for at in range(8))
    return f"REAL int f{k}(int n) {{ {lines} int r = f{k + 1}(n + 1); return r + {total}; }}"


def _many_arguments(k: int, _: random.Random) -> str:
    names = [f"a{at}" for at in range(9)]
    return (
        f"REAL int m{k}({', '.join(f'int {name}' for name in names)}) {{ return f{k + 1}(a0 + 1) + {' + '.join(names)}; }}"
        f" REAL int f{k}(int n) {{ return m{k}(n, {', '.join(['sink'] * 8)}) + 1; }}"
    )


def _inlined(k: int, dice: random.Random) -> str:
    depth = dice.randrange(1, 4)
    lines = [f"INTO int i{k}_0(int n) {{ return f{k + 1}(n + 1) + sink; }}"]
    lines += [f"INTO int i{k}_{at}(int n) {{ return i{k}_{at - 1}(n + 1) * 3; }}" for at in range(1, depth)]
    return " ".join(lines) + f" REAL int f{k}(int n) {{ return i{k}_{depth - 1}(n) + n; }}"


def _jumped(k: int, _: random.Random) -> str:
    return f"REAL int f{k}(int n) {{ return f{k + 1}(n + 1); }}"


def _never_returns(k: int, _: random.Random) -> str:
    return (
        f"__attribute__((noinline, noreturn)) void n{k}(int n) {{ sink = f{k + 1}(n + 1); exit(3); }}"
        f" REAL int f{k}(int n) {{ n{k}(n + 1); }}"
    )


def _seldom(k: int, _: random.Random) -> str:
    return (
        f"__attribute__((noinline, cold)) int c{k}(int n) {{ return f{k + 1}(n + 1) + sink; }}"
        f" REAL int f{k}(int n) {{ if (__builtin_expect(n != -7, 0)) {{ sink += c{k}(n); sink += 2; }} return sink; }}"
    )


def _recursive(k: int, dice: random.Random) -> str:
    return (
        f"REAL int r{k}(int n, int left) {{ volatile char room[40]; room[n & 31] = n;"
        f" return (left ? r{k}(n, left - 1) : f{k + 1}(n + 1)) + room[0]; }}"
        f" REAL int f{k}(int n) {{ return r{k}(n, {dice.choice((1, 5, 40))}) + 1; }}"
    )


def _sorted(k: int, _: random.Random) -> str:
    return (
        f"static int q{k}(const void *a, const void *b) {{ return f{k + 1}(*(const int *)a & 7) + 1; }}"
        f" REAL int f{k}(int n) {{ int all[5]; for (int i = 0; i < 5; i++) all[i] = n + i;"
        f" qsort(all, 5, sizeof *all, q{k}); return all[2]; }}"
    )


def _signalled(k: int, dice: random.Random) -> str:
    number, flags = dice.choice(("SIGUSR1", "SIGUSR2")), dice.choice(("0", "SA_ONSTACK"))
    return (
        f"static void h{k}(int s) {{ sink = f{k + 1}(s & 7); }}"
        f" REAL int f{k}(int n) {{ heed({number}, h{k}, {flags}); raise({number}); return sink; }}"
    )


def _interrupted(k: int, dice: random.Random) -> str:
    flags = dice.choice(("0", "SA_ONSTACK"))
    return (
        f"static void h{k}(int s) {{ signal(SIGFPE, SIG_DFL); sink = f{k + 1}(s & 7); _exit(3); }}"
        f" REAL int f{k}(int n) {{ heed(SIGFPE, h{k}, {flags}); return n / (sink - sink); }}"
    )


def _on_a_thread(k: int, _: random.Random) -> str:
    return (
        f"static void *t{k}(void *n) {{ return (void *)(long)f{k + 1}((int)(long)n); }}"
        f" REAL int f{k}(int n) {{ pthread_t t; pthread_create(&t, 0, t{k}, (void *)(long)n); pthread_join(t, 0);"
        " return sink; }"
    )


def _destroyed(k: int, _: random.Random) -> str:
    return (
        f"struct G{k} {{ int n; REAL ~G{k}() {{ sink = f{k + 1}(n + 1); }} }};"
        f" REAL int f{k}(int n) {{ G{k} guard = {{n}}; return sink + n; }}"
    )


def _cleaned_up(k: int, _: random.Random) -> str:
    return (
        f"struct G{k} {{ int n; REAL ~G{k}() noexcept(false) {{ sink = f{k + 1}(n + 1); }} }};"
        f" REAL void x{k}(int n) {{ if (n != -9) throw n; }}"
        f" REAL int u{k}(int n) {{ G{k} guard = {{n}}; x{k}(n); return sink; }}"
        f" REAL int f{k}(int n) {{ try {{ return u{k}(n); }} catch (int) {{ return 1; }} }}"
    )


def _caught(k: int, _: random.Random) -> str:
    return (
        f"REAL void x{k}(int n) {{ if (n != -9) throw n; }}"
        f" REAL int f{k}(int n) {{ try {{ x{k}(n); }} catch (int one) {{ return f{k + 1}(one + 1) + 2; }} return n; }}"
    )


def _virtual(k: int, _: random.Random) -> str:
    return (
        f"struct V{k} {{ virtual int go(int n) = 0; virtual ~V{k}() {{}} }};"
        f" struct W{k} : V{k} {{ REAL int go(int n) override {{ return f{k + 1}(n + 1) + sink; }} }};"
        f" V{k} *volatile v{k};"
        f" REAL int f{k}(int n) {{ v{k} = new W{k}; return v{k}->go(n) + 1; }}"
    )


def _lambda(k: int, _: random.Random) -> str:
    return (
        f"template <class T> REAL int l{k}(T call, int n) {{ return call(n) + 1; }}"
        f" REAL int f{k}(int n) {{ return l{k}([n](int m) {{ return f{k + 1}(m + n) + sink; }}, 3) + 1; }}"
    )


C_KINDS: tuple[Kind, ...] = (
    *(_plain, _alloca, _aligned, _aligned_alloca, _registers, _many_arguments, _inlined, _inlined, _jumped),
    *(_never_returns, _seldom, _recursive, _sorted, _signalled, _interrupted),
)
CPP_KINDS: tuple[Kind, ...] = (*C_KINDS, _destroyed, _cleaned_up, _caught, _virtual, _lambda)


def program(seed: int, *, cpp: bool) -> str:
    """The source of a program that dies; the same one for the same seed."""
    dice = random.Random(seed)
    kinds = [dice.choice(CPP_KINDS if cpp else C_KINDS) for _ in range(dice.randrange(4, 14))]
    if dice.random() < 0.3:
        kinds.insert(dice.randrange(len(kinds)), _on_a_thread)
    end = dice.choice(ENDS).format(k=len(kinds), size=dice.choice((1, 90, 9000)))
    return _source(kinds, dice, end, "other_stack(); return f0(argc) + 1;")


def returning(seed: int, *, cpp: bool) -> str:
    """The source of a program whose chain returns, call by call; ``int3`` is its first and its last instruction.

    GCC's tables are wrong for three instructions at the end of a function that aligns its stack and has an array of
    variable length: rbp is restored already, and they say that it still points to where it was saved.
    """
    dice = random.Random(seed)
    without = {_signalled, _interrupted, _never_returns, _aligned_alloca}
    kinds = [dice.choice([kind for kind in (CPP_KINDS if cpp else C_KINDS) if kind not in without]) for _ in range(8)]
    end = f"REAL int f{len(kinds)}(int n) {{ return n + sink; }}"
    return _source(kinds, dice, end, '__asm__ volatile("int3"); sink = f0(argc); __asm__ volatile("int3"); return 0;')


def _source(kinds: list[Kind], dice: random.Random, end: str, main: str) -> str:
    parts = [HEAD, *(f"int f{k}(int n);" for k in range(len(kinds) + 1))]
    parts += [kind(k, dice) for k, kind in enumerate(kinds)]
    return "\n".join([*parts, end, f"int main(int argc, char **argv) {{ {main} }}"])


def flags(seed: int) -> list[str]:
    """How it is compiled, but for the level of optimization."""
    dice = random.Random(seed + 1)
    return [
        dice.choice(("-fomit-frame-pointer", "-fno-omit-frame-pointer", "-momit-leaf-frame-pointer")),
        dice.choice(("-fcf-protection=none", "-fcf-protection=full")),
        dice.choice(("-fno-stack-protector", "-fstack-protector-all")),
        dice.choice(("-fno-pie", "-fpie")),
    ]


def build(folder: Path, source: str, words: str, level: str, seed: int) -> Path:
    """Compile ``source`` by the compiler ``words`` at a level of optimization."""
    file = folder / ("made.cc" if words.endswith("++") else "made.c")
    file.write_text(source)
    out = folder / "made"
    more = flags(seed)
    link = "-no-pie" if "-fno-pie" in more else "-pie"
    command = [compiler(words), "-w", "-g", level, *more, link, "-o", str(out), str(file), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return out
