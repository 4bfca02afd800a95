"""Runs built ops of the corpus, each in a fork of this process; verify_corpus.py starts it.

stdin: a JSON list of [source, library]; stdout: one line [source, [what happened, ...]] for each. After a signal that
is its name; ``asan`` after a report of a sanitizer; ``ok`` for the answer that the source promises, else ``wrong``.
With ``--here``, they are run in this process: graphs, which crash on their own after a fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from corpus_marks import AnnotatedOp, Call, annotated

_TIME_LIMIT = 60
_HANG_LIMIT = 15


def main() -> int:
    import tensorflow as tf

    for source, library in json.load(sys.stdin):
        op = annotated(Path(source))
        said = _run(op, library, tf) if sys.argv[1:] == ["--here"] else _outcome(op, library, tf)
        print(json.dumps([source, said]), flush=True)
    return 0


def _outcome(op: AnnotatedOp, library: str, tf: Any) -> list[str]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        log = os.open(library + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        said = _run(op, library, tf)
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], _HANG_LIMIT if op.ending == "hangs" else _TIME_LIMIT)
    if not ready:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        return ["hangs"]
    with open(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return [signal.Signals(os.WTERMSIG(status)).name]
    log_text = Path(library + ".log").read_text(errors="replace")
    if os.WEXITSTATUS(status):
        at_fault = "Sanitizer" in log_text or "runtime error" in log_text
        return ["asan" if at_fault else f"exit code {os.WEXITSTATUS(status)}"]
    return json.loads(text) if text else ["nothing said"]


def _run(op: AnnotatedOp, path: str, tf: Any) -> list[str]:
    try:
        library = tf.load_op_library(path)
    except Exception as error:
        return [f"cannot be loaded: {error}"]
    functions = {name.replace("_", "").lower(): getattr(library, name) for name in dir(library)}
    said: list[str] = []

    def once() -> None:
        results: list[Any] = []
        for call in op.calls:
            answer = _answer(call, functions[call.op.lower()], results, tf, "graph" in op.fields)
            said.append(answer)

    def again() -> None:
        for _ in range(int(op.fields.get("repeats", 1))):
            once()

    threads = [threading.Thread(target=again) for _ in range(int(op.fields.get("threads", 1)))]
    if len(threads) == 1:
        again()
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return said if len(said) <= len(op.calls) else sorted(set(said))


def _answer(call: Call, function: Any, results: list[Any], tf: Any, graph: bool) -> str:
    try:
        inputs = {name: _value(value, results, tf) for name, value in call.arguments.items()}
        result = _in_graph(function, inputs, tf) if graph else function(**inputs)
        results.append(result)
        value = _plain(result)
    except Exception as error:
        results.append(None)
        refused = isinstance(error, RuntimeError) and "does not support eager execution" in str(error)
        if not isinstance(error, tf.errors.OpError) and not refused:
            return f"wrong: {type(error).__name__}: {str(error)[:200]}"
        if call.answer in ("error", "any"):
            return f"ok: {type(error).__name__}: {str(error)[:80]}"
        return f"wrong: {type(error).__name__}: {str(error)[:200]}"
    if call.answer == "any" or _same(call.answer, value):
        return "ok"
    return f"wrong: {str(value)[:100]}"


def _in_graph(function: Any, inputs: dict[str, Any], tf: Any) -> Any:
    tensors = {name: value for name, value in inputs.items() if tf.is_tensor(value)}
    others = {name: value for name, value in inputs.items() if name not in tensors}
    specs = [tf.TensorSpec(None, value.dtype) for value in tensors.values()]
    traced = tf.function(
        lambda *given: function(**dict(zip(tensors, given, strict=True)), **others),
        input_signature=specs,
        autograph=False,
    )
    return traced(*tensors.values())


def _value(value: Any, results: list[Any], tf: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "result" in value:
        return results[value["result"]]
    if "list" in value:
        return [_value(each, results, tf) for each in value["list"]]
    if "text" in value:
        return value["text"] * value["times"]
    if "type" in value:
        return tf.as_dtype(value["type"])
    if "texts" in value:
        return tf.constant([each["text"] * each["times"] for each in value["texts"]])
    dtype = value.get("dtype")
    if "arange" in value:
        return tf.range(value["arange"], dtype=dtype)
    if "zeros" in value:
        return tf.zeros(value["zeros"], dtype or "float32")
    if "fill" in value:
        return tf.constant(value["fill"], dtype=dtype, shape=value["shape"])
    return tf.constant(value["value"], dtype=dtype, shape=value.get("shape"))


def _plain(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [_plain(each) for each in result]
    if result is None or not hasattr(result, "numpy") or "resource" in str(getattr(result, "dtype", "")):
        return None
    found = result.numpy()
    return _text(found.tolist() if hasattr(found, "tolist") else found)


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(value, list)
            and len(expected) == len(value)
            and all(_same(one, other) for one, other in zip(expected, value, strict=True))
        )
    if isinstance(expected, float) or isinstance(value, float):
        return isinstance(value, (int, float)) and abs(expected - value) <= 1e-4 * max(1, abs(expected))
    return bool(expected == value)


if __name__ == "__main__":
    sys.exit(main())
