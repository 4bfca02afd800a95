"""The program was ended from outside.

What happened
-------------
Another process, the kernel or the terminal sent a signal that ends a program: SIGKILL, SIGTERM, SIGINT (Ctrl-C),
SIGHUP (the terminal was closed). Nothing was wrong with the program's code at that moment. If SIGTERM, SIGINT,
SIGQUIT or SIGXCPU came from outside the run, necropsy read the threads at that signal. The report begins with the
line where the program was. Whether it was slow there or hung is for you to judge.

How to be sure
--------------
A system call filter (seccomp) sends SIGSYS; a timer that the program set sends SIGALRM and similar signals. The
signal is one that processors do not raise, or the kernel names another process as its sender. SIGKILL (exit code 137,
status -9) leaves no trace in the process itself. **137 alone does not mean out of memory**: the OOM killer sends it,
and so do ``kill -9``, a batch system at its time limit, ``docker stop`` after ten seconds, and a supervisor. Only the
kernel's log or the cgroup's counters prove out of memory. Often the sender says so: Slurm (``DUE TO TIME LIMIT``,
``CANCELLED AT``), LSF (``TERM_RUNLIMIT``), Kubernetes (``failed liveness probe``), gunicorn (``WORKER TIMEOUT``).
gunicorn's ``Perhaps out of memory?`` is a guess that it prints with every SIGKILL. On Windows 0xC000013A
(-1073741510) is Ctrl-C or a console that was closed, 0x40010004 a debugger or a logoff.

How to fix it now
-----------------
Find who sent it. For memory: ``dmesg | grep -i 'killed process'`` and ``oom_kill`` in
``/sys/fs/cgroup/memory.events``. For a batch system: its log of the job, time limit and memory limit. For a
container: ``docker inspect`` (``OOMKilled``). For a notebook: its server's log.

How to prevent it
-----------------
Write checkpoints; handle SIGTERM (``signal.signal``) to save and leave; ask for the memory and time that the job
needs.

What it is often mistaken for
-----------------------------
A crash of the program; and 137 is often mistaken for out of memory.

Sources
-------
- https://man7.org/linux/man-pages/man7/signal.7.html
- https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files (memory.events)
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import died_by, messages, quote, sender_of, sent_by_another, sent_itself_abort, signal_of
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import requested, unexplained_kills
from necropsy.rules.aborts import aborted, aborted_by_another
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.exit_causes import causes_of
from necropsy.rules.windows_loader import ended_with
from necropsy.rules.wording import short

_SENT = {
    "SIGKILL": "SIGKILL, which cannot be caught",
    "SIGTERM": "SIGTERM, a request to shut down",
    "SIGINT": "SIGINT, as Ctrl-C sends it",
    "SIGHUP": "SIGHUP, sent when the terminal or the connection is closed",
    "SIGQUIT": "SIGQUIT, as Ctrl-\\ sends it",
    "SIGPIPE": "SIGPIPE: it wrote to a pipe that no process reads any more",
    "SIGALRM": "SIGALRM, a timer that ran out",
    "SIGVTALRM": "SIGVTALRM, a timer that ran out",
    "SIGPROF": "SIGPROF, a profiler's timer that ran out",
    "SIGUSR1": "SIGUSR1, which it did not expect",
    "SIGUSR2": "SIGUSR2, which it did not expect",
}


def _match(crash: Crash) -> Finding | None:
    if (told := _told(crash) or _on_windows(crash) or _by_filter(crash) or _by_timer(crash)) is not None:
        return told
    if (asked := requested.match(crash)) is not None:
        return asked
    signal = signal_of(crash)
    other = sent_by_another(crash)
    itself = crash.fault is not None and crash.fault.sent_by_itself is True
    if signal in {"SIGABRT", "SIGTRAP"} and (aborted(crash) or not sent_itself_abort(crash)):
        itself = False
    if signal is None or (signal not in _SENT and not other and not itself):
        return None
    died = died_by(crash, signal)
    oom: Found = ()
    sender = crash.fault.sender if crash.fault else None
    by = f"P{named[1:]} sent it" if other and (named := sender_of(crash)) else "It was sent"
    what = _SENT.get(signal, _spell(signal))
    system = messages(crash, "macos-termination")
    oom += tuple(quote(message, "why macOS ended it") for message in system[-1:])
    doubt = ""
    if system:
        doubt = f"; macOS did so ({system[-1].text})"
    elif signal == "SIGKILL" and not sender:
        doubt, oom = unexplained_kills.doubt(crash)
    before, where_it_stood = requested.before_a_kill(crash)
    return Finding(
        evidence=died + other + oom + (python_line(crash) if itself else ()) + where_it_stood,
        summary=f"The program was ended from outside. {by} {what}{doubt}.{before}"
        if not itself
        else f"The program sent itself {what}.",
        confidence="certain" if other or itself else "likely",
        culprit=culprit_of(crash) if itself else None,
        title="The program sent itself a signal" if itself else None,
        fixes=_OWN if itself else unexplained_kills.fixes(crash) if signal == "SIGKILL" else _fixes(signal),
        possible=() if other or itself else unexplained_kills.causes(crash),
    )


def _by_filter(crash: Crash) -> Finding | None:
    """A seccomp filter killed it or sent an unhandled SIGSYS; a manual SIGSYS has a known sender."""
    if signal_of(crash) != "SIGSYS" or (crash.fault is not None and crash.fault.sender is not None):
        return None
    thread = crash.crashed_thread
    frame = next(iter(thread.frames or ()), None) if thread is not None else None
    call = f", made in {short(frame.function)}," if frame is not None and frame.function else ""
    where: Found = ()
    if frame is not None and frame.function:
        where = (Evidence(claim="where the system call was made", seen=frame.function, where=f"frame {frame.index}"),)
    return Finding(
        evidence=died_by(crash, "SIGSYS") + where + python_line(crash),
        summary=f"A filter of system calls (seccomp) ended the program: the call{call} is not allowed.",
        confidence="certain" if crash.fault is not None and crash.fault.code == "SYS_SECCOMP" else "likely",
        culprit=culprit_of(crash),
        title="A system call that a filter does not allow",
        fixes=(
            Fix(
                text="Find who set the filter, and allow the call there: the container's profile, a sandbox, or the program itself.",
                command="grep Seccomp /proc/self/status; docker run --security-opt seccomp=unconfined ...",
            ),
            Fix(text="The kernel's log says which call it was.", command="dmesg | grep 'type=1326'"),
        ),
    )


_TIMERS = {"SIGALRM": "alarm() or setitimer(ITIMER_REAL)", "SIGVTALRM": "ITIMER_VIRTUAL", "SIGPROF": "ITIMER_PROF"}
_BY_TIMER = frozenset({"SI_KERNEL", "SI_TIMER"})


def _by_timer(crash: Crash) -> Finding | None:
    """Signals of an expired timer of the process itself; nothing else can set one."""
    signal, fault = signal_of(crash), crash.fault
    if signal not in _TIMERS or fault is None or fault.code not in _BY_TIMER:
        return None
    return Finding(
        evidence=died_by(crash, signal),
        summary=f"The program ended itself: a timer that it had set ran out ({_TIMERS[signal]}), and nothing handled {signal}.",
        confidence="certain",
        culprit=culprit_of(crash),
        title="A timer that the program had set ran out",
        fixes=(
            Fix(
                text=f"Handle {signal} before the timer is set, or cancel the timer in time. A timer survives exec: "
                "the program that started this one may have set it.",
                command=f"signal.signal(signal.{signal}, handler)",
            ),
        ),
    )


def _words(crash: Crash) -> Found:
    text = crash.exit.text.strip() if crash.exit is not None and crash.exit.text else ""
    return (Evidence(claim="who says so", seen=text, where="text"),) if " " in text else ()


# ---------------------------------------------------------------- who ended it says so

_WHY = {
    "time": "because its time was over",
    "stopped": "as instructed",
    "preempted": "to make room for another job",
    "probe": "because it did not answer a probe",
    "node": "because the machine that it ran on failed",
}


def _told(crash: Crash) -> Finding | None:
    """The program's launcher says that it ended it, and why."""
    said = messages(crash, "ended-from-outside")
    signals = {*_SENT, "SIGABRT"} if aborted_by_another(crash) else set(_SENT)
    ended = crash.exit is None or crash.exit.kind in {"timeout", "lost"} or signal_of(crash) in signals
    if not said or crash.fault is not None or not ended:
        return None
    own = [one for one in said if crash.pid is not None and re.search(rf"\b{crash.pid}\b", one.text)]
    message = (own or list(said))[0]
    by, why = message.fields["by"], message.fields.get("why", "")
    return Finding(
        evidence=(
            quote(message, "the launcher reports it"),
            *(died_by(crash, signal_of(crash) or "") or _words(crash)),
        ),
        summary=f"The program was ended from outside: {by} ended it {_WHY.get(why, 'on its own initiative')}.",
        # Who waited for a process that had died before is ended too: that is no cause.
        confidence="possible" if _died_before(crash, message) else "certain",
        title="The program's time was over" if why == "time" else None,
        fixes=_fixes_of(why, message),
    )


_LAST_WORDS = (
    *("check-failed", "non-ok-status", "not-reached", "fatal-log", "assertion", "libstdcxx-assertion", "python-fatal"),
    *("glibc-abort", "stack-smash", "fortify", "cpp-terminate", "cpp-terminate-bare", "sanitizer", "faulthandler"),
)


def _died_before(crash: Crash, message: Message) -> bool:
    """A process wrote its last message before ``message``."""
    return any(
        one.line is not None and message.line is not None and one.line < message.line
        for one in messages(crash, *_LAST_WORDS)
    )


def _fixes_of(why: str, message: Message) -> tuple[Fix, ...]:
    if why == "time":
        return (
            Fix(
                text=f"Ask {message.fields['by']} for more time, or save the work often and resume from the last checkpoint."
            ),
            Fix(
                text="Slow, or hanging? See what every thread does shortly before the time is over.",
                command="necropsy run --timeout SECONDS python ...",
            ),
        )
    if why == "probe":
        return (
            Fix(
                text="Give the probe more time (timeoutSeconds, failureThreshold), and answer it from a separate thread."
            ),
            Fix(text="See when it failed.", command="kubectl describe pod POD; kubectl logs --previous POD"),
        )
    return (
        Fix(text="Find who sent it: the batch system's or container's log of the job says who cancelled it, and when."),
        Fix(text="Save the work on SIGTERM, which comes first, and resume from the last checkpoint."),
    )


_WINDOWS_CTRL_C, _WINDOWS_DEBUG_CTRL_C, _WINDOWS_TERMINATED = 0xC000013A, 0x40010005, 0x40010004


def _on_windows(crash: Crash) -> Finding | None:
    """Windows statuses of a process ended from outside."""
    claim = "the process was ended from outside"
    died = ended_with(crash, _WINDOWS_CTRL_C, _WINDOWS_DEBUG_CTRL_C, claim=claim)
    what = "by Ctrl-C, or because its console was closed or the user logged off"
    if not died:
        died = ended_with(crash, _WINDOWS_TERMINATED, claim=claim)
        what = "by its debugger, or by the system at a logoff or shutdown"
    if not died:
        return None
    return Finding(
        evidence=died + _words(crash),
        summary=f"The program was ended from outside: {what}.",
        confidence="likely",
        fixes=(
            Fix(
                text="Nothing, if it was you. Otherwise check what runs it: an IDE, a task, a service, a batch system."
            ),
            Fix(text="Run it from a plain console, which stays open.", command="cmd /k python -u train.py"),
        ),
        possible=causes_of(crash),
    )


def _spell(signal: str) -> str:
    crashes = signal in {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"}
    return f"{signal}, a signal that usually means a crash, but here it did not crash" if crashes else signal


_OWN = (
    Fix(
        text="Look for the code that sends the signal to its own process: os.kill(os.getpid(), ...), "
        "signal.raise_signal, raise(), kill $$."
    ),
)


def _fixes(signal: str) -> tuple[Fix, ...]:
    if signal == "SIGPIPE":
        return (
            Fix(text="Keep the reader of its output alive, or let Python ignore the signal, as it does by default."),
        )
    return (
        Fix(
            text="Find who sent it: the terminal, a batch system's time limit, a supervisor; and save the work on SIGTERM."
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    beats=("exit-status-only",),
    tried=Tried(
        advice="Depends on how it was sent; for a timer that the program set: handle the signal before the timer is set.",
        result="crash gone",
        how=(
            "The printed ``signal.signal(...)`` in front of the timer; the program then ended by its handler. "
            "For a SIGKILL whose sender is unknown, the advice is to check the kernel's log. By hand, the printed commands ruled out the OOM killer, and did not name the sender (another process' ``kill -9``)."
        ),
        test="tests/rules/test_advice.py::test_a_timer_of_its_own",
    ),
    hit="""
        exit 137
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
        thread 4711 python3 crashed
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
)
