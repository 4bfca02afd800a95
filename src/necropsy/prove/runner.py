"""Loads one library of ops, and makes calls in forks of itself: ``python runner.py LIBRARY OPTIONS``.

It runs in the interpreter that has TensorFlow, where nothing else of necropsy can be imported. stdin: a JSON list of
calls a line, each the text of a Python expression. stdout: one JSON object for each line that it prints: first the ops
of the library, then how each call ended, and ``{"done": true}`` behind each list. Nothing of TensorFlow's runtime has
started when it forks: the calls of one list share a child, and a death costs only the call that died.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import os
import re
import select
import signal
import sys
import threading
import time
from typing import Any

_TAIL = 60_000
_WORDS = 300
_PATIENCE = 5
_MOST_HUNG = 2
"""Calls of one list that may reach a limit before the rest is skipped."""


def main() -> int:
    """Answer on a copy of stdout: what the library itself prints goes nowhere."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    runner = Runner(json.loads(sys.argv[2]), out, nowhere)
    try:
        what = "TensorFlow cannot be imported"
        import tensorflow as tf

        what = "the library cannot be loaded"
        module = tf.load_op_library(sys.argv[1])
        described = _described(module, tf)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        runner.say({"refused": f"{what}: {_last_line(error)}"})
        return 0
    _read_symbols()
    runner.say({"ops": described})
    for line in sys.stdin:
        calls, at, runner.hung = json.loads(line), 0, 0
        while at < len(calls) and runner.hung < _MOST_HUNG:
            at = runner.some(calls, at, {"tf": tf, "ops": module})
        runner.say({"done": True})
    return 0


def _read_symbols() -> None:
    """AddressSanitizer then has all symbols before the forks, not in each dying child."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None)["__sanitizer_print_stack_trace"]()


def _last_line(error: Exception) -> str:
    lines = re.sub(r"\{\{.*?\}\} *| \[Op:\w+\]", "", str(error)).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_WORDS]


def _described(module: Any, tf: Any) -> dict[str, Any]:
    """Inputs, attributes and kernel types of each op of the library."""
    from tensorflow.python.framework import kernels, op_def_registry

    found = {}
    for name in dir(module):
        is_op = name[:1].isupper() and inspect.isfunction(getattr(module, name))
        definition = op_def_registry.get(name) if is_op else None
        if definition is not None:
            found[name] = {
                "inputs": [_input(one, tf) for one in definition.input_arg],
                "attributes": [_attribute(one, tf) for one in definition.attr],
                "kernels": [
                    {each.name: _types(each.allowed_values, tf) for each in one.constraint}
                    for one in kernels.get_registered_kernels_for_op(name).kernel
                    if one.device_type == "CPU"
                ],
            }
    return found


def _types(values: Any, tf: Any) -> list[str]:
    return [tf.as_dtype(one).name for one in values.list.type]


def _input(one: Any, tf: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": tf.as_dtype(one.type).name if one.type else None,
        "type_attribute": one.type_attr or None,
        "number_attribute": one.number_attr or None,
        "types_attribute": one.type_list_attr or None,
    }


def _attribute(one: Any, tf: Any) -> dict[str, Any]:
    kind = one.default_value.WhichOneof("value")
    default = None
    if kind == "type":
        default = tf.as_dtype(one.default_value.type).name
    elif kind is not None:
        default = str(getattr(one.default_value, kind)) if kind in {"i", "f", "b"} else ""
    return {
        "name": one.name,
        "type": one.type,
        "minimum": one.minimum if one.has_minimum else None,
        "allowed": [
            *_types(one.allowed_values, tf),
            *(each.decode(errors="replace") for each in one.allowed_values.list.s),
        ],
        "default": default,
    }


class Runner:
    """Makes calls in children, within limits, and says how each ended."""

    def __init__(self, options: dict[str, Any], out: Any, nowhere: int) -> None:
        self.options, self.out, self.nowhere = options, out, nowhere
        self.hung = 0
        self.log = os.path.join(options["folder"], "log")

    def say(self, answer: dict[str, Any]) -> None:
        """Print one line."""
        self.out.write(json.dumps(answer) + "\n")
        self.out.flush()

    def some(self, calls: list[str], at: int, names: dict[str, Any]) -> int:
        """Make the calls from ``at`` on in one child. Returns the number of the first one that was not made."""
        reading, writing = os.pipe()
        with open(self.log, "wb"):
            pass
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._child(calls[at:], names, writing)
        os.close(writing)
        rest, since, ended = b"", time.monotonic(), None
        while ended is None:
            ready, _, _ = select.select([reading], [], [], 0.1)
            if ready:
                part = os.read(reading, 1 << 16)
                if not part:
                    break
                rest += part
                while b"\n" in rest:
                    line, rest = rest.split(b"\n", 1)
                    self.say(dict(json.loads(line), call=at))
                    at, since = at + 1, time.monotonic()
            elif time.monotonic() - since > self.options["seconds"] * (_PATIENCE if self._is_reporting() else 1):
                ended = "time"
            elif _resident(child) > self.options["memory"]:
                ended = "memory"
        if ended is not None:
            self.hung += 1
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reading)
        if at == len(calls):
            return at
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        with open(self.log, "rb") as file:
            text = file.read(_TAIL).decode("utf-8", "replace")
        self.say({"call": at, "ended": ended or "died", "code": code, "log": text})
        return at + 1

    def _is_reporting(self) -> bool:
        """AddressSanitizer has begun a report, which takes long on a busy machine."""
        with open(self.log, "rb") as file:
            return b"Sanitizer" in file.read(_TAIL)

    def _child(self, calls: list[str], names: dict[str, Any], writing: int) -> None:
        """Make the calls on a thread with the stack size that the findings assume, and end."""
        file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(self.nowhere, 0)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(self.options["folder"])

        def make() -> None:
            for text in calls:
                try:
                    result = eval(text, dict(names))
                    answer = {"ended": "value", "said": _shape(result)}
                except Exception as error:  # noqa: BLE001 - a proper error is one of the outcomes
                    answer = {"ended": "error", "said": f"{type(error).__name__}: {_last_line(error)}"}
                os.write(writing, json.dumps(answer).encode() + b"\n")
            os._exit(0)

        with contextlib.suppress(ValueError):
            threading.stack_size(self.options["stack"])
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        os._exit(3)


def _shape(result: Any) -> str:
    if isinstance(result, (list, tuple)):
        return ", ".join(map(_shape, result))
    return f"a tensor of shape {getattr(result, 'shape', '')}" if result is not None else "nothing"


def _resident(child: int) -> int:
    try:
        with open(f"/proc/{child}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
