"""The high-water mark of stacks, of threads that did use what they are said to have used."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect.stack_use import peak_rss, stack_use

SOURCE = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
static volatile int ready;
__attribute__((noinline)) void use(int kib) {
  volatile char *room = __builtin_alloca(kib * 1024); for (int i = 0; i < kib; i++) room[i * 1024] = 1;
}
__attribute__((noinline)) void reach(int kib) { volatile char *room = __builtin_alloca(kib * 1024); room[0] = 1; }
static void *work(void *kib) { use((long)kib); ready = 1; for (;;) pause(); }
int main(int argc, char **argv) {
  pthread_t t; pthread_create(&t, 0, work, (void *)3000L);
  while (!ready) usleep(1000);
  if (argc > 1) reach(5000); else use(2000);
  raise(SIGTERM);
}
"""


@pytest.mark.parametrize(("arguments", "main_kib"), [((), 2000), (("reach",), 5000)])
def test_the_peak_is_what_was_used_and_stays_after_it(
    tmp_path: Path, arguments: tuple[str, ...], main_kib: int
) -> None:
    binary = build(tmp_path, SOURCE, "-O0")
    with dying([str(binary), *arguments], stack=8 << 20) as death:
        uses = {use.tid: use for use in stack_use(death.pid, death.threads)}
        peak = peak_rss(death.pid)
    main = uses.pop(death.pid)
    (worker,) = uses.values()
    assert main.size == 8 << 20
    assert main.peak is not None
    assert main_kib << 10 <= main.peak <= (main_kib + 200) << 10
    assert worker.peak is not None
    assert 3000 << 10 <= worker.peak <= 3200 << 10
    assert worker.size is not None
    assert abs(worker.size - (8 << 20)) <= 8192
    assert peak is not None
    assert peak > main.peak // 2


def test_a_process_that_is_gone_has_no_figures() -> None:
    (use,) = stack_use(2**22 + 1, [2**22 + 1])
    assert (use.size, use.peak) == (None, None)
    assert peak_rss(2**22 + 1) is None
