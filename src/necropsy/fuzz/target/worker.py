"""Makes the calls: a forked worker takes a batch after the other, until it dies of one.

A call is two texts of Python: what is called, and its keyword arguments. ``descriptors`` are numbers of files that the
campaign has opened: ``wake`` (a pipe: a byte for each batch), ``done`` (a pipe: a byte for each batch that is done),
``batch`` (JSON: its ``calls``, the ``stack`` that they may take, what to ``guard``, see ``guarding``, whether to make
them in a ``graph``, by which ``threads`` at the same time, see ``make_together``, and whether to ``compare`` the
results of several calls each),
``results`` (how each ended, see ``RECORD``), ``messages`` (a JSON line for each new message) and ``log`` (stdout and
stderr).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import mmap
import os
import re
import signal
import struct
import sys
import time
from types import CodeType
from typing import Any, Sequence

from necropsy.fuzz.target import caught_crashes, comparing, guarding, small_stack, together

if sys.platform != "win32":
    import resource

HEAD = struct.Struct("=qd")
"""The number of the call in progress, and when it began (time.monotonic); -1 between batches."""
RECORD = struct.Struct("=B7x8s8sdq8x")
"""How a call ended, the digests of its message and of its result, its seconds, and the bytes of its result."""
FIRST = 64
MOST = 200
"""Calls of a batch."""
COMPARED = FIRST + MOST * RECORD.size
"""Where the table of constants begins that a sanitized build compares with: how many, and then each."""
SHARED = COMPARED + 256 * 8
"""Bytes of the shared memory."""
ACCEPTED, REFUSED, MISUSED = 1, 2, 3
"""Calls that gave a result; raised an error; or never reached the target, because the arguments do not fit it."""
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_WHERE = re.compile(r"\{\{.*?\}\} *| \[Op:\w+\]")
_LONGEST = 400
_MOST_LOG = 64 << 20
_NO_DIGEST = bytes(8)
_NOTHING = (_NO_DIGEST, 0)
_WHOLE, _PLACES, _PLACE = 1 << 18, 32, 4096
"""Bytes up to which the whole of an array counts for its digest; of a larger one, as many places of so many bytes."""
_MOST_TEXTS, _TEXT = 10000, 24
"""Texts of a tensor that are looked at; bytes of one in TensorFlow's memory."""


def work(descriptors: dict[str, int], limits: dict[str, Any], names: dict[str, Any]) -> None:
    """Make the calls of each batch; returns when nobody wants any more."""
    _restrict(descriptors["log"], limits)
    use_one_thread = names.pop("__use_one_thread__", None)
    if limits.get("one_thread") and use_one_thread is not None:
        use_one_thread()
    warm = names.pop("__warm__", None)
    if warm is not None:
        warm()
    shared = mmap.mmap(descriptors["results"], SHARED)
    sanitized = names.pop("__sanitized__", None)
    if sanitized is not None:
        table = ctypes.c_uint64.from_buffer(shared, COMPARED)
        ctypes.CDLL(sanitized).necropsy_comparisons_use(ctypes.byref(table))
    refusals: tuple[Any, ...] = names.pop("__refusals__")
    seen: set[bytes] = set()
    while os.read(descriptors["wake"], 1):
        size = os.fstat(descriptors["batch"]).st_size
        batch = json.loads(os.pread(descriptors["batch"], size, 0))
        make = functools.partial(make_calls, batch, shared, names, refusals, descriptors["messages"], seen)
        if batch["stack"] is None:
            make()
        else:
            try:
                small_stack.run(batch["stack"], make)
            except small_stack.NoStackError:
                make_none(len(batch["calls"]), shared)
        os.write(descriptors["done"], b".")


def make_calls(  # noqa: PLR0917 - two places call it
    batch: dict[str, Any],
    shared: mmap.mmap,
    names: dict[str, Any],
    refusals: tuple[Any, ...],
    messages: int,
    seen: set[bytes],
) -> None:
    """Make the calls of a batch, one after the other; ``seen``: the digests of messages that were written before."""
    guard = guarding.Guard(batch["guard"])
    for at, (function, arguments) in enumerate(batch["calls"]):
        began = time.monotonic()
        HEAD.pack_into(shared, 0, at, began)
        status, text, (digest, size) = made(batch, (function, arguments), names, refusals, guard)
        alike = text if batch["compare"] else _NUMBER.sub("N", text)
        said = hashlib.blake2b(alike.encode("utf-8", "replace"), digest_size=8).digest()
        if text and said not in seen:
            seen.add(said)
            line = json.dumps({"digest": said.hex(), "text": text}) + "\n"
            os.write(messages, line.encode())
        RECORD.pack_into(
            shared,
            FIRST + at * RECORD.size,
            *(status, said if text else _NO_DIGEST, digest, time.monotonic() - began, size),
        )
    HEAD.pack_into(shared, 0, -1, 0.0)


def make_none(many: int, shared: mmap.mmap) -> None:
    """The calls of a batch cannot be made."""
    for at in range(many):
        RECORD.pack_into(shared, FIRST + at * RECORD.size, MISUSED, _NO_DIGEST, _NO_DIGEST, 0.0, 0)


def made(
    batch: dict[str, Any],
    one: tuple[str, str],
    names: dict[str, Any],
    refusals: tuple[Any, ...],
    guard: guarding.Guard,
) -> tuple[int, str, tuple[bytes, int]]:
    """Make one call as the batch wants it: how it ended, its message, and the digest and the bytes of its result."""
    function, arguments = one
    if batch["compare"]:
        return compared(function, arguments, names, refusals, batch["guard"])
    if batch["threads"] is not None:
        return make_together([one, *batch["threads"]["beside"]], names, guard, batch["threads"])
    return call("in_graph(%s)" % function if batch["graph"] else function, arguments, names, refusals, guard)


def call(
    function: str, arguments: str, names: dict[str, Any], refusals: tuple[Any, ...], guard: guarding.Guard
) -> tuple[int, str, tuple[bytes, int]]:
    """Make one call, by this thread."""
    try:
        code = compile("dict(%s)" % arguments, "<call>", "eval")  # whose blocks need no guard
        with guard.inputs:
            given = eval(code, names)
            if guard.is_used and "__separate__" in names:
                given = names["__separate__"](given)
    except Exception as error:  # noqa: BLE001 - a value that cannot be made is no call
        return MISUSED, message(error), _NOTHING
    try:
        with guard.call:
            result = eval(_compiled(function), names)(**given)
        return ACCEPTED, "", digest_of(result)
    except refusals as error:
        caught_crashes.die_of(error)
        return REFUSED, message(error), _NOTHING
    except Exception as error:  # noqa: BLE001 - whatever it is, Python has seen it
        return MISUSED, message(error), _NOTHING


@functools.lru_cache(maxsize=16)
def _compiled(function: str) -> CodeType:
    """The code of ``function``, cached because all calls of a campaign name the same one."""
    return compile(function, "<call>", "eval")


def make_together(
    calls: Sequence[Sequence[str]], names: dict[str, Any], guard: guarding.Guard, wanted: dict[str, Any]
) -> tuple[int, str, tuple[bytes, int]]:
    """Make the calls by ``many`` threads at the same time for ``seconds``; their results are not kept."""
    try:
        several = together.made(calls, names, guard)
    except Exception as error:  # noqa: BLE001 - a value that cannot be made is no call
        return MISUSED, message(error), _NOTHING
    together.make(several, guard, wanted["many"], wanted["seconds"])
    return ACCEPTED, "", _NOTHING


def compared(
    function: str, arguments: str, names: dict[str, Any], refusals: tuple[Any, ...], guard: dict[str, Any] | None
) -> tuple[int, str, tuple[bytes, int]]:
    """Make one call several times; the text says what that showed."""
    try:
        return ACCEPTED, comparing.compare(function, arguments, names, refusals, guard), _NOTHING
    except Exception as error:  # noqa: BLE001 - whatever it is, Python has seen it
        return MISUSED, message(error), _NOTHING


def message(error: Exception) -> str:
    """The first line of an error, without the place in a graph."""
    lines = _WHERE.sub("", str(error)).strip().splitlines()
    return ("%s: %s" % (type(error).__name__, lines[0] if lines else ""))[:_LONGEST]


def digest_of(result: Any) -> tuple[bytes, int]:
    """The same for the same types, shapes and bytes; and how many bytes its arrays have.

    Of a large array only the bytes in some places count, of many texts only their number.
    """
    found = hashlib.blake2b(digest_size=8)
    size = _add(found, result)
    return found.digest(), size


def _add(found: Any, value: Any) -> int:
    if isinstance(value, (list, tuple)):
        found.update(b"(%d" % len(value))
        return sum([_add(found, one) for one in value])
    many = _many_texts(value)
    if many:
        found.update(str(value.shape).encode())
        return many * _TEXT
    array = _array_of(value)
    if not (hasattr(array, "dtype") and hasattr(array, "tobytes")):
        found.update(repr(array)[:_LONGEST].encode("utf-8", "replace") if isinstance(array, _PLAIN) else b"?")
        return 0
    found.update(("%s%s" % (array.dtype, array.shape)).encode())
    if array.dtype.hasobject:
        found.update(repr(array.tolist()).encode())
    elif array.nbytes <= _WHOLE or not array.flags.c_contiguous:
        found.update(array.tobytes())
    else:
        plain = array.reshape(-1).view("uint8")
        for at in range(_PLACES):
            first = (len(plain) - _PLACE) * at // (_PLACES - 1)
            found.update(plain[first : first + _PLACE])
    return int(array.nbytes)


def _many_texts(value: Any) -> int:
    """How many texts a tensor has, if they are too many to make each a Python object."""
    if getattr(getattr(value, "dtype", None), "name", None) != "string":
        return 0
    many = value.shape.num_elements() or 0
    return many if many > _MOST_TEXTS else 0


def _array_of(value: Any) -> Any:
    """The value, a tensor as an array; None for a resource, which has no value."""
    if not hasattr(value, "numpy"):
        return value
    read = getattr(value, "_numpy", None) or value.numpy  # TensorFlow's numpy() makes a copy
    try:
        return read()
    except Exception:  # noqa: BLE001 - a resource
        return None


_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def _restrict(log: int, limits: dict[str, Any]) -> None:
    """Files, signals and limits as a call finds them."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.ftruncate(log, 0)
    os.lseek(log, 0, os.SEEK_SET)  # where the worker before stood
    for standard in (1, 2):
        os.dup2(log, standard)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, _MOST_LOG),
        (resource.RLIMIT_DATA, limits.get("data")),
    ):
        if most is not None:
            limit(kind, most)


def limit(kind: int, most: int) -> None:
    """Set a limit that can be raised again."""
    hard = resource.getrlimit(kind)[1]
    if most == resource.RLIM_INFINITY:
        most = hard
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
