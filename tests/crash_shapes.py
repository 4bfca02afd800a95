"""A hundred programs that die with Python on the stack, each on a line that is known beforehand, run as one.

``DIE`` is replaced by one of ``KILLERS`` in turn. The line with it is the one that a headline must name; if the innermost
Python code has no file (``exec``), ``HERE`` marks that line instead.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

COUNT = 100
"""No more deaths of one run are reported."""
KILLERS = (
    "ctypes.string_at(16)",
    "os.abort()",
    "libc.strlen(8)",
    "signal.raise_signal(signal.SIGSEGV)",
    "ctypes.memset(24, 0, 1)",
    "faulthandler._sigsegv()",
    "os.kill(os.getpid(), signal.SIGBUS)",
    "ctypes.c_int.from_address(32).value",
    "libc.abort()",
    "libc.qsort(40, 4, 8, compare)",
)

_SHAPES = Path(__file__).with_suffix(".txt").read_text()
"""Bodies of functions, with ``---`` between them."""

_HEAD = """
import argparse, asyncio, atexit, bisect, collections, collections.abc, concurrent.futures, contextlib, copy, csv
import ctypes, dataclasses, enum, faulthandler, functools, gc, heapq, io, itertools, json, logging, multiprocessing
import operator, os, pickle, re, signal, sqlite3, sys, threading, types, unittest, weakref, xml.parsers.expat
import numpy
libc = ctypes.CDLL(None)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda left, right: 0)
sys.stderr = open(os.devnull, "w")

def run(shape):
    pid = os.fork()
    if not pid:
        shape()
        sys.exit(3)
    os.waitpid(pid, 0)

"""
_TAIL = """
for shape in shapes:
    run(shape)
"""


def program(*, with_numpy: bool) -> tuple[str, list[int]]:
    """The text of a program that dies a hundred times, and the line that each death must name, in their order.

    The functions that it dies in are called ``shape0`` to ``shape99``.
    """
    shapes = [one for one in _SHAPES.strip("\n").split("\n---\n") if with_numpy or "numpy" not in one][:COUNT]
    text = _HEAD.replace("import numpy\n", "import numpy\n" if with_numpy else "")
    expected = []
    for number, shape in enumerate(shapes):
        lines = shape.splitlines()
        line = next((at for at, each in enumerate(lines) if "HERE" in each), None)
        line = line if line is not None else next(at for at, each in enumerate(lines) if "DIE" in each)
        text += f"def shape{number}():\n"
        expected.append(text.count("\n") + line + 1)
        text += textwrap.indent(shape.replace("DIE", KILLERS[number % len(KILLERS)]), "    ") + "\n\n"
    return text + f"shapes = [{', '.join(f'shape{number}' for number in range(len(shapes)))}]\n" + _TAIL, expected
