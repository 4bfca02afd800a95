"""Threads that wait in system calls that are no lock: none of them was running."""

from __future__ import annotations

from pathlib import Path

from live import compiled, library, python, reports_of_standing

from necropsy import serialize
from necropsy.reports import html, markdown, text

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


STOPPED_BEFORE = """
    #include <pthread.h>
    #include <poll.h>
    #include <semaphore.h>
    #include <signal.h>
    #include <time.h>
    #include <unistd.h>
    static sem_t never;
    static void *sleeps(void *unused) { sleep(3000); return unused; }
    static void *polls(void *unused) { poll(0, 0, 3000000); return unused; }
    int main(void) {
      pthread_t one, two;
      struct timespec end;
      signal(SIGCHLD, SIG_IGN);
      sem_init(&never, 0, 0);
      clock_gettime(CLOCK_REALTIME, &end);
      end.tv_sec += 3000;
      pthread_create(&one, 0, sleeps, 0);
      pthread_create(&two, 0, polls, 0);
      if (fork() == 0) {
        usleep(200000);
        kill(getppid(), SIGSTOP);
        usleep(200000);
        kill(getppid(), SIGCONT);
        return 0;
      }
      return sem_timedwait(&never, &end);
    }
"""


def test_a_wait_with_a_limit_that_was_stopped_before(tmp_path: Path) -> None:
    """The kernel goes on with it as another call (restart_syscall)."""
    program = [str(compiled(STOPPED_BEFORE, tmp_path / "program", "-pthread"))]
    threads = reports_of_standing(program, tmp_path)[0]["crash"]["threads"]
    waits = {one["waits"]["call"]: one["waits"] for one in threads}
    assert waits.keys() == {"futex", "clock_nanosleep", "poll"}
    assert waits["futex"]["limited"] is True


GIL_AND_MUTEX = """
    #include <fcntl.h>
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t store = PTHREAD_MUTEX_INITIALIZER;
    static volatile int is_locked, is_inside;
    static void *later(void *unused) { usleep(500000); close(open("stands", O_CREAT | O_RDWR, 0600)); return unused; }
    void feed(void (*call)(void)) {
      pthread_mutex_lock(&store);
      is_locked = 1;
      while (!is_inside) usleep(1000);
      call();
      pthread_mutex_unlock(&store);
    }
    void total(void) {
      pthread_t thread;
      is_inside = 1;
      while (!is_locked) usleep(1000);
      pthread_create(&thread, 0, later, 0);
      pthread_mutex_lock(&store); pthread_mutex_unlock(&store);
    }
"""
"""Who waits for the GIL wakes every five milliseconds, so it is not seen to stand: the program says when it does."""


def test_a_circle_of_the_gil_and_a_mutex_is_drawn(tmp_path: Path) -> None:
    """One thread has the GIL and wants the mutex; the other has the mutex and wants to call Python."""
    path = library(GIL_AND_MUTEX, tmp_path, "-pthread")
    code = f"""
    import ctypes, threading
    @ctypes.CFUNCTYPE(None)
    def note(): pass
    without, holding = ctypes.CDLL({str(path)!r}), ctypes.PyDLL({str(path)!r})
    def worker():
        without.feed(note)
    threading.Thread(target=worker, daemon=True).start()
    holding.total()
    """
    reports = reports_of_standing(python(code), tmp_path, tmp_path / "stands")
    verdict = reports[0]["verdict"]
    assert (verdict["rule"], verdict["confidence"]) == ("hang", "certain")
    for_mutex, for_gil = sorted(verdict["deadlock"], key=lambda step: step["lock"] == "the GIL")
    assert (for_mutex["holder"], for_gil["holder"]) == (for_gil["thread"], for_mutex["thread"])
    assert for_gil["lock"] == "the GIL" and for_mutex["lock"].startswith("the mutex at 0x")
    assert (for_mutex["where"]["function"], for_gil["where"]["function"]) == ("total", "feed")
    assert for_mutex["where"]["python"]["line"] and for_gil["where"]["python"]["function"] == "worker"
    document = serialize.loads((tmp_path / "report.json").read_bytes())
    drawn = f"waits for {for_mutex['lock']}, held by"
    for rendered in (text.render(document), markdown.render(document), html.render(document)):
        assert drawn in rendered and "waits for the GIL, held by" in rendered
