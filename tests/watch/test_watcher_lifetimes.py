"""Whoever is killed, the watched program runs on; and what was started for it ends."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

import needs
from necropsy import store
from watching import facts, is_gone, kept, program, rules

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the watcher is for Linux")

KILLED = """
def works():
    worker = threading.Thread(target=lambda: tell(thread=True))
    worker.start(); worker.join()
    return subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout.strip()

necropsy.enable()
killed = threading.Event()
waits = threading.Thread(target=killed.wait)
waits.start()
victims = {"watcher": [hub()], "tracer": [tracer()], "both": [hub(), tracer()]}[sys.argv[1]]
tell(victims=[hub(), tracer()])
for victim in victims:
    os.kill(victim, getattr(signal, sys.argv[2]))
for victim in victims:
    until_dead(victim) if sys.argv[2] == "SIGKILL" else time.sleep(0.5)  # it may take a while to do what it must not
killed.set()
waits.join()
tell(works=works(), again=necropsy.enable(), tracer=tracer(), hub=hub())
crash()
"""


@pytest.mark.parametrize("who", ["watcher", "tracer", "both"])
def test_a_program_runs_on_without_its_watcher_and_can_have_itself_watched_anew(who: str, tmp_path: Path) -> None:
    process = program(KILLED, tmp_path, arguments=(who, "SIGKILL"))
    found = facts(process)
    assert (found["works"], found["again"]) == ("42", True)
    assert process.returncode == -11
    assert rules(tmp_path) == ["null-dereference"]
    for pid in {*found["victims"], found["tracer"], found["hub"]} - {1}:  # 1: a tracer has outlived its watcher
        assert is_gone(pid)


def test_sigterm_does_not_end_the_watcher_before_its_last_client(tmp_path: Path) -> None:
    process = program(KILLED, tmp_path, arguments=("both", "SIGTERM"))
    found = facts(process)
    assert found["works"] == "42"
    assert found["victims"] == [found["hub"], found["tracer"]]
    assert rules(tmp_path) == ["null-dereference"]


def test_a_report_is_made_where_the_watcher_was_killed_but_its_tracer_was_not(tmp_path: Path) -> None:
    text = "necropsy.enable()\nwatcher = hub()\nos.kill(watcher, signal.SIGKILL)\nuntil_dead(watcher)\ncrash()\n"
    facts(program(text, tmp_path))
    assert rules(tmp_path) == ["null-dereference"]


def test_sockets_of_killed_watchers_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "necropsy-old" / "watcher"
    old.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(old))
    os.utime(old, (0, 0))
    text = """
necropsy.enable()
until = time.monotonic() + 30
while os.path.exists(sys.argv[1]) and time.monotonic() < until:
    time.sleep(0.05)
tell(hub=hub())
os.kill(hub(), signal.SIGKILL)
"""
    found = facts(program(text, tmp_path, arguments=(str(old),), TMPDIR=str(tmp_path)))
    assert is_gone(found["hub"])
    assert not old.parent.exists()


def test_a_socket_on_which_somebody_listens_is_not_removed(tmp_path: Path) -> None:
    theirs = tmp_path / "necropsy-theirs" / "watcher"
    theirs.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(theirs))
        listener.listen()
        os.utime(theirs, (0, 0))
        found = facts(program("necropsy.enable()\ntell(hub=hub())\n", tmp_path, TMPDIR=str(tmp_path)))
        assert is_gone(found["hub"])
        assert theirs.exists()


def test_who_dies_dies_of_its_signal_though_the_tracer_that_holds_it_is_killed(tmp_path: Path) -> None:
    text = """
dying = os.getpid()
if not os.fork():
    while not tracer(dying):
        time.sleep(0.01)
    while open(f"/proc/{dying}/stat").read().rpartition(")")[2].split()[0] != "t":
        time.sleep(0.001)
    os.kill(tracer(dying), signal.SIGKILL)
    os._exit(0)
necropsy.enable()
time.sleep(0.2)
crash()
"""
    process = program(text, tmp_path)
    facts(process)
    assert process.returncode == -11


def test_a_tracer_that_stands_still_is_killed_and_the_program_runs_on(tmp_path: Path) -> None:
    text = """
necropsy.enable()
old = tracer()
os.kill(old, signal.SIGSTOP)
thread = threading.Thread(target=int)
thread.start(); thread.join()
tell(old=old, now=tracer(), again=necropsy.enable())
"""
    process = program(text, tmp_path)
    found = facts(process)
    assert process.returncode == 0
    assert (found["now"], found["again"]) == (0, True)
    assert is_gone(found["old"])


def test_children_are_watched_when_their_parent_has_ended(tmp_path: Path) -> None:
    text = """
necropsy.enable()
if os.fork():
    os._exit(0)
while os.getppid() != 1 and os.path.exists(f"/proc/{os.getppid()}/exe"):
    time.sleep(0.01)
tell(watched=necropsy.enable())
crash()
"""
    found = facts(program(text, tmp_path))
    assert found == {"watched": True}
    assert rules(tmp_path) == ["null-dereference"]


def test_programs_of_one_tree_share_a_watcher_and_none_waits_for_the_others(tmp_path: Path) -> None:
    text = """
watch.start()
def runs():
    necropsy.enable()
    tell(**{f"hub{os.getpid()}": hub()})
    crash()
children = []
for _ in range(6):
    child = os.fork()
    if not child:
        runs()
    children.append(child)
for child in children:
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == 11
"""
    found = facts(program(text, tmp_path))
    assert len(found) == 6 and len(set(found.values())) == 1
    assert len(kept(tmp_path)) == 6


def test_reports_of_a_parallel_program_have_the_numbers_of_its_processes(tmp_path: Path) -> None:
    text = """
necropsy.enable()
for rank in (0, 1):
    subprocess.run([sys.executable, "-c", "import os; os.abort()"], env={**os.environ, "RANK": str(rank)})
"""
    facts(program(text, tmp_path))
    assert [store.worker_of(path) for path in reversed(store.kept(tmp_path / "reports"))] == ["rank0", "rank1"]


def test_a_process_that_executes_the_script_is_watched_with_nothing_of_ours_in_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nassert 'necropsy' not in sys.modules\nprint(f'{{\"args\": {len(sys.argv)}}}', flush=True)\nos.abort()\n"
    )
    text = f"os.execv(sys.executable, [sys.executable, '-m', 'necropsy.auto', {str(script)!r}, 'a', '--b'])\n"
    for switch, reports in (("0", 0), ("1", 1)):
        process = program(text, tmp_path, NECROPSY=switch)
        assert facts(process) == {"args": 3}
        assert process.returncode == -6
        assert len(kept(tmp_path)) == reports


NAMESPACE = ("--pid", "--fork", "--mount-proc")


@needs.namespace(*NAMESPACE)
@pytest.mark.parametrize("step", ["crash()", "os.fork() and os.wait() or crash()"], ids=["itself", "its child"])
def test_the_first_process_of_a_container_dies_after_its_report(step: str, tmp_path: Path) -> None:
    process = program(f"necropsy.enable()\n{step}\n", tmp_path, ("unshare", *NAMESPACE))
    facts(process)
    assert rules(tmp_path) == ["null-dereference"]
