"""Threads that wait in system calls that are no lock: none of them was running."""

from __future__ import annotations

from pathlib import Path

from live import compiled, reports_of_standing

SOURCE = """
    #include <fcntl.h>
    #include <pthread.h>
    #include <sys/file.h>
    #include <sys/stat.h>
    #include <unistd.h>
    static void *locks(void *unused) { flock(open("held", O_RDWR), LOCK_EX); return unused; }
    int main(void) {
      int held = open("held", O_RDWR | O_CREAT, 0600);
      flock(held, LOCK_EX);
      mkfifo("pipe", 0600);
      pthread_t thread;
      pthread_create(&thread, 0, locks, 0);
      return open("pipe", O_RDONLY);
    }
"""


def test_a_wait_in_any_call_is_a_wait(tmp_path: Path) -> None:
    (report,) = reports_of_standing([str(compiled(SOURCE, tmp_path / "program", "-pthread"))], tmp_path)
    verdict = report["verdict"]
    assert verdict["rule"] == "hang"
    main, other = (one["seen"] for one in verdict["evidence"])
    assert main.startswith("waits in openat on pipe")
    assert other.startswith("waits in flock on file descriptor")
    assert str(tmp_path / "held") in other
