"""Runs a program again and again in forks of one interpreter: ``python trial_server.py``

Run by the program's own interpreter, so it needs nothing but the standard library, of any Python from 3.6 on. It
reads requests from stdin, a line of JSON each, and answers each on stdout. The first names the modules to import;
the answer says how many threads there are afterwards: a fork has only the thread that called fork(2). Each further one
is a trial: ``{"script": "train.py", "module": null, "argv": [], "environment": {}, "unset": [], "timeout": 10,
"busy": 5, "idle": 1, "output": "/tmp/x/output", "observe": null}``, answered by ``{"pid": 4711, "status": 11,
"timed_out": false, "busy": 0.2, "idle": 0.1}``, the status as of waitpid(2). A trial is ended after ``timeout``
seconds, when it has used the processor for ``busy`` seconds, or when it did nothing but wait for ``idle`` seconds:
such a candidate waits for something that does not come. The answer has what it took of both. With ``observe`` a file
gets the lines of the program that were executed and the files that it opened, each when it happens: that survives the
death.
"""

import builtins
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
import time
import types
from typing import Any, Callable, TextIO

LONGEST = 1000
"""Characters of the text of a value."""
LOOK_S = 0.2
"""How often a trial is looked at to see whether anything of it runs."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LITTLE = 0.02
"""The part of the time that one who only waits may run."""
EXAMINED_S = 15.0
"""So much longer than its limit a trial may take whose death is being examined."""


def serve() -> None:
    """Import, say that it is ready, and answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    requests = os.fdopen(os.dup(0), "r")
    for handle in (0, 1, 2):
        os.dup2(nothing, handle)
    sys.path[0] = ""
    first = json.loads(requests.readline())
    failed = []
    for name in first["imports"]:
        try:
            importlib.import_module(name)
        except BaseException:
            failed.append(name)
    say(answers, {"pid": os.getpid(), "threads": len(os.listdir("/proc/self/task")), "failed": failed})
    for line in requests:
        say(answers, trial(json.loads(line)))


def say(file: "TextIO", answer: "dict[str, Any]") -> None:
    """One line of JSON."""
    file.write(json.dumps(answer) + "\n")
    file.flush()


def trial(request: "dict[str, Any]") -> "dict[str, Any]":
    """Run the program in a fork, in a session of its own that is ended with it."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        status = 1
        try:
            status = run(request)
        finally:
            os._exit(status & 0xFF)
    watched = Watched(pid)
    deadline = time.monotonic() + request["timeout"]
    timed_out = False
    wait = 0.0005
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        now = time.monotonic()
        if not timed_out:
            watched.look(now)
            timed_out = now > deadline + (EXAMINED_S if watched.is_examined else 0) or watched.exceeds(request)
            if timed_out:
                for other in processes_of(pid)[0]:
                    kill(other, os.kill)
        time.sleep(wait)
        wait = min(0.005, wait * 1.5)
    kill(pid, os.killpg)
    busy = usage.ru_utime + usage.ru_stime
    return {"pid": pid, "status": status, "timed_out": timed_out, "busy": busy, "idle": watched.longest}


class Watched:
    """What the processes of a trial do: whether they run or only wait.

    On a busy machine threads wait for a core. These count as running, and so does what waits for a disk.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_examined = False
        """A tracer has stopped it: it is dying."""
        self.busy = self.idle = self.longest = 0.0
        self._busy_before = 0.0
        self._since = time.monotonic()
        self._next = self._since + LOOK_S

    def look(self, now: float) -> None:
        """Look at the processes, if it is time for that."""
        if now < self._next:
            return
        self._next = now + LOOK_S
        states, self.busy = activity(self.pid)
        self.is_examined = "t" in states
        # Who asks again and again whether there is something to do waits, too.
        waits = self.busy - self._busy_before <= TICK_S + LITTLE * (now - self._since)
        if not (waits and states <= {"S", "Z"}):
            self._busy_before, self._since = self.busy, now
        self.idle = now - self._since
        self.longest = max(self.longest, self.idle)

    def exceeds(self, limits: "dict[str, Any]") -> bool:
        """It has waited, or run, for too long."""
        return any(limits[name] is not None and getattr(self, name) > limits[name] for name in ("busy", "idle"))


def activity(root: int) -> "tuple[set[str], float]":
    """The states of all threads of a process, its session and its descendants, and the seconds that these have run."""
    own, all_fields = processes_of(root)
    states, ticks = set(), 0  # type: set[str], int
    for pid in own & set(all_fields):
        ticks += sum(int(field) for field in all_fields[pid][11:15])
        try:
            states.update(fields_of("%d/task/%s" % (pid, thread))[0] for thread in os.listdir("/proc/%d/task" % pid))
        except OSError:
            pass
    return states, ticks * TICK_S


def processes_of(root: int) -> "tuple[set[int], dict[int, list[str]]]":
    """A process, its session and its descendants; and what /proc says of every process."""
    all_fields = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                all_fields[int(name)] = fields_of(name)
            except OSError:
                pass  # it has ended
    own = {root}
    before = 0
    while len(own) > before:
        before = len(own)
        own.update(pid for pid, fields in all_fields.items() if int(fields[1]) in own or int(fields[3]) == root)
    return own, all_fields


def fields_of(process: str) -> "list[str]":
    """What /proc says of a process or thread, from its state on (proc_pid_stat(5))."""
    with open("/proc/%s/stat" % process, errors="replace") as file:
        return file.read().rsplit(") ", 1)[-1].split()


def run(request: "dict[str, Any]") -> int:
    """In the fork: the program, as ``python SCRIPT`` runs it. Returns its exit status."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for name in request["unset"]:
        os.environ.pop(name, None)
    os.environ.update(request["environment"])
    if request["observe"]:
        observe(request["observe"], os.getcwd() + os.sep)
    try:
        if request["module"]:
            sys.argv = [request["module"]] + request["argv"]
            sys.path[0] = os.getcwd()
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [request["script"]] + request["argv"]
            sys.path[0] = os.path.dirname(os.path.abspath(request["script"]))
            runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    for end in (sys.stdout, sys.stderr):
        end.flush()
    # What a program registers for its end may be what it dies of.
    exit_functions = sys.modules.get("atexit") or importlib.import_module("atexit")
    exit_functions._run_exitfuncs()
    return 0


def observe(path: str, folder: str) -> None:
    """Note executed lines and opened files below ``folder`` from now on."""
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    seen = set()  # type: set[tuple[str, int]]

    def note(name: str, line: int) -> None:
        if (name, line) not in seen:
            seen.add((name, line))
            full = os.path.abspath(name)
            if full.startswith(folder):
                os.write(notes, (json.dumps([full[len(folder) :], line]) + "\n").encode())

    def hook(event: str, arguments: "Any") -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            note(os.fsdecode(arguments[0]), 0)
        elif event == "ctypes.dlopen" and isinstance(arguments[0], str):
            note(arguments[0], 0)

    def saw(number: int, value: "Any") -> "Any":
        try:
            text = literal(value) or name_of(value, sys._getframe(1), folder)
            os.write(notes, (json.dumps(["=", number, text, threading.get_native_id()]) + "\n").encode())
        except BaseException:
            pass
        return value

    builtins.__necropsy_seen__ = saw  # type: ignore[attr-defined]  # a program that is instrumented calls it
    sys.addaudithook(hook)
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "necropsy")

        def executed(code: "Any", line: int) -> "Any":
            note(code.co_filename, line)
            return monitoring.DISABLE

        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, executed)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        return
    inside = {}  # type: dict[str, bool]

    def entered(frame: "Any", event: str, argument: "Any") -> "Callable[..., Any] | None":
        name = frame.f_code.co_filename
        if name not in inside:
            inside[name] = os.path.abspath(name).startswith(folder)
        if not inside[name]:
            return None
        note(name, frame.f_lineno)
        return stepped

    def stepped(frame: "Any", event: str, argument: "Any") -> "Callable[..., Any]":
        if event == "line":
            note(frame.f_code.co_filename, frame.f_lineno)
        return stepped

    threading.settrace(entered)
    sys.settrace(entered)


def literal(value: "Any", depth: int = 0) -> "str | None":
    """Python's text for a value; None where it has none, or a long one."""
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        if kind is int and value >> 32 > 0 and is_address(value):
            return None
        if kind is str:
            value = value.replace(os.getcwd() + os.sep, "." + os.sep)
        text = ascii(value)
        return text if len(text) <= LONGEST else None
    if kind is float:
        return repr(value) if value - value == 0 else "float('%r')" % value
    if kind in (list, tuple, dict) and depth < 6 and len(value) <= LONGEST // 3:
        items = []
        for item in value.items() if kind is dict else value:
            pair = item if kind is dict else (item,)
            texts = [literal(one, depth + 1) for one in pair]
            if None in texts:
                return None
            items.append(": ".join(map(str, texts)))
            if sum(map(len, items)) > LONGEST:
                return None
        inner = ", ".join(items)
        if kind is tuple:
            return "(" + inner + (",)" if len(items) == 1 else ")")
        return "[" + inner + "]" if kind is list else "{" + inner + "}"
    return special(value)


def name_of(value: "Any", frame: "Any", folder: str) -> "str | None":
    """How code can refer to a function or class of the program by its name; a new object stands for one without state.

    With ``@`` in front: decorators have given that name to something else.
    """
    kind = type(value)  # type: Any
    named = value  # type: Any
    made = ""
    if kind is not type and kind is not types.FunctionType:
        if (
            kind.__init__ is not object.__init__
            or kind.__new__ is not object.__new__
            or getattr(value, "__dict__", True)
        ):
            return None
        named, made = kind, "()"
    own_name = named.__name__
    own = getattr(sys.modules.get(named.__module__), "__file__", None)
    if not own or not os.path.abspath(own).startswith(folder):
        return None
    names = frame.f_globals
    hidden = frame.f_locals if frame.f_locals is not names else {}
    for name, found in names.items():
        if name in hidden:
            continue
        if found is named:
            return "%s%s" % (name, made)
        if isinstance(found, types.ModuleType) and vars(found).get(own_name) is named:
            return "%s.%s%s" % (name, own_name, made)
    if not made and own_name == named.__qualname__ and named.__module__ == names.get("__name__"):
        return "@%s" % own_name
    return None


def is_address(value: "int") -> "bool":
    """It points to memory of this process: in the next one something else is there."""
    with open("/proc/self/maps") as file:
        for line in file:
            low, high = line.split(" ", 1)[0].split("-")
            if int(low, 16) <= value < int(high, 16):
                return True
    return False


def special(value: "Any") -> "str | None":
    """Arrays of ctypes and of NumPy, and tensors, by the names under which programs import these libraries."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None and isinstance(value, ctypes.Array) and value._type_.__name__.startswith("c_"):
        items = literal(list(value[: LONGEST // 4])) if len(value) <= LONGEST // 4 else None
        if items is None or value._type_ is ctypes.c_char_p:
            return None
        if isinstance(value[:1], (bytes, str)):
            return None
        return "(ctypes.%s * %d)(%s)" % (value._type_.__name__, len(value), items[1:-1])
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is numpy.ndarray and value.size <= LONGEST // 3 and value.dtype.kind in "biuf":
        items = literal(value.tolist())
        if items is None or "float(" in items:
            return None
        return "np.array(%s, dtype=%r)" % (items, str(value.dtype))
    if type(value).__name__ == "EagerTensor" and numpy is not None:
        array = numpy.asarray(value.numpy())
        kind = str(array.dtype)
        if array.dtype.kind not in "biuf" or array.size > LONGEST // 3:
            return None
        if not array.size:
            return "tf.zeros(%r, %r)" % (list(array.shape), kind)
        items = literal(array.tolist())
        return "tf.constant(%s, %r)" % (items, kind) if items is not None and "float(" not in items else None
    return None


def kill(number: int, by: "Callable[[int, int], None]") -> None:
    """End a process or a group of a trial, if it is there."""
    try:
        by(number, signal.SIGKILL)
    except OSError:
        pass


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    serve()
