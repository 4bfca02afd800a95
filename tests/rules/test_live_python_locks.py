"""Deadlocks between locks of Python's own: which thread holds each lock, drawn as a cycle with the locks and the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from live import python, reports_of_standing, told

from necropsy import serialize
from necropsy.reports import html, markdown, text


def verdict_of(code: str, folder: Path) -> dict[str, Any]:
    """The verdict on a program whose threads all stand still."""
    verdict = reports_of_standing(python(code), folder)[0]["verdict"]
    assert isinstance(verdict, dict) and verdict["rule"] == "hang"
    return verdict


TWO_LOCKS = """
    import threading
    class Account:
        def __init__(self):
            self._lock = {kind}()
    both = threading.Barrier(2)
    def transfer(source, target):
        with source._lock:
            both.wait()
            with target._lock:
                pass
    a, b = Account(), Account()
    threading.Thread(target=transfer, args=(a, b), daemon=True).start()
    transfer(b, a)
"""


def test_two_rlocks_are_drawn_with_their_owners(tmp_path: Path) -> None:
    verdict = verdict_of(TWO_LOCKS.format(kind="threading.RLock"), tmp_path)
    assert verdict["confidence"] == "certain"
    first, second = verdict["deadlock"]
    assert (first["holder"], second["holder"]) == (second["thread"], first["thread"])
    assert first["name"] == "the main thread" and first["lock"] != second["lock"]
    assert [one["where"]["python"]["line"] for one in (first, second)] == [10, 10]
    assert "which has taken it once" in told({"verdict": verdict})
    document = serialize.loads((tmp_path / "report.json").read_bytes())
    for rendered in (text.render(document), markdown.render(document), html.render(document)):
        assert all(f"waits for {one['lock']}, held by" in rendered for one in (first, second))


def test_a_plain_lock_is_held_by_who_is_in_its_with_statement(tmp_path: Path) -> None:
    """And one of ``multiprocessing`` by whom it names; the wait for that one has a limit of time."""
    code = """
    import multiprocessing, threading
    plain, shared = threading.Lock(), multiprocessing.Lock()
    both = threading.Barrier(2)
    def work():
        with plain:
            both.wait()
            shared.acquire(timeout=3000)
    threading.Thread(target=work, daemon=True).start()
    with shared:
        both.wait()
        plain.acquire()
    """
    verdict = verdict_of(code, tmp_path)
    assert verdict["confidence"] == "likely"
    main, other = verdict["deadlock"]
    assert main["lock"].startswith("the Lock at 0x") and other["lock"].startswith("the multiprocessing Lock at 0x")
    assert f"thread {other['thread']} is in the body of a with statement on it" in told({"verdict": verdict})
    crash = serialize.loads((tmp_path / "report.json").read_bytes()).reports[0].crash
    assert crash is not None
    waits = {one.tid: one.waits for one in crash.threads or ()}
    of_main, of_other = waits[main["thread"]], waits[other["thread"]]
    assert of_main is not None and of_other is not None
    assert (of_main.limited, of_other.limited) == (False, True)


def test_joining_a_thread_that_waits_for_a_lock_of_ours(tmp_path: Path) -> None:
    code = """
    import threading
    lock = threading.RLock()
    def work():
        with lock:
            pass
    with lock:
        worker = threading.Thread(target=work, name="worker", daemon=True)
        worker.start()
        worker.join()
    """
    verdict = verdict_of(code, tmp_path)
    assert verdict["confidence"] == "certain"
    joins, waits = verdict["deadlock"]
    assert (joins["joins"], waits["joins"]) == (True, False)
    assert verdict["fixes"][0]["text"].startswith("Release the lock before the thread is joined")
    document = serialize.loads((tmp_path / "report.json").read_bytes())
    assert "waits for the end of\n" in text.render(document)
    assert "which holds the end of" not in text.render(document)


def test_locks_that_nobody_is_known_to_hold(tmp_path: Path) -> None:
    """A ``with`` statement that has ended leaves its method on the stack, beyond what is in use; and a thread is gone."""
    code = """
    import threading
    first, second, third, left = threading.Lock(), threading.Lock(), threading.Lock(), threading.RLock()
    third.acquire()
    done = threading.Event()
    def work():
        with first:
            with second:
                pass
            done.set()
            third.acquire()
    threading.Thread(target=work, daemon=True).start()
    done.wait()
    second.acquire()
    threading.Thread(target=second.acquire, daemon=True).start()
    ended = threading.Thread(target=left.acquire)  # the last to start: another would get its stack, and so its number
    ended.start()
    ended.join()
    left.acquire()
    """
    verdict = verdict_of(code, tmp_path)
    assert verdict["deadlock"] == [] and verdict["confidence"] == "likely"
    assert "for an RLock that nothing will release" in verdict["summary"]
    main, *others = (one["seen"] for one in verdict["evidence"])
    assert "the thread that holds it is gone" in main
    assert all("Python does not record who holds it" in one for one in others)
