"""Tracebacks in all the forms in which people have them.

Those of CPython 3.8 to 3.13, IPython 7.34, 8.12 and 9, rich 15 and pytest 9 were printed for this test, with the names of
folders changed; Ray's, PyTorch's and loguru's are written after their sources.
"""

# ruff: noqa: W291, W293 - as they were printed

from __future__ import annotations

import json
from io import BytesIO

import pytest
from hypothesis import given, settings

from necropsy.formats.log import digest, scan
from necropsy.formats.tracebacks import LINES, is_exception, read
from necropsy.model import Message
from reading import cut_and_mixed

RECURSION_38 = """\
Traceback (most recent call last):
  File "rec.py", line 2, in <module>
    f(0)
  File "rec.py", line 1, in f
    def f(n): return f(n+1)
  File "rec.py", line 1, in f
    def f(n): return f(n+1)
  [Previous line repeated 996 more times]
RecursionError: maximum recursion depth exceeded
"""
CARETS_313 = """\
Traceback (most recent call last):
  File "/home/u/rec.py", line 2, in <module>
    f(0)
    ~^^^
  File "/home/u/rec.py", line 1, in f
    def f(n): return g(n+1)
                     ~^^^^^
KeyError: 'a'
"""
REMOTE = '''\
multiprocessing.pool.RemoteTraceback: 
"""
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
    result = (True, func(*args, **kwds))
                    ^^^^^^^^^^^^^^^^^^^
  File "/home/u/remote.py", line 4, in work
    raise ValueError("in the child")
ValueError: in the child
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/remote.py", line 7, in <module>
    with mp.get_context("fork").Pool(1) as p: p.map(work,[1])
                                              ^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get
    raise self._value
ValueError: in the child
'''
IN_PROCESS = """\
Process ForkProcess-1:
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap
    self.run()
  File "/home/u/remote.py", line 4, in work
    raise ValueError("in the child")
ValueError: in the child
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/home/u/group.py", line 11, in <module>
  |     main()
  |   File "/home/u/group.py", line 10, in main
  |     e=ExceptionGroup("outer", errs); e.add_note("a note"); raise e
  |                                                            ^^^^^^^
  | ExceptionGroup: outer (2 sub-exceptions)
  | a note
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/u/group.py", line 8, in main
    |     try: f()
    |          ^^^
    |   File "/home/u/group.py", line 1, in leaf
    |     def leaf(): raise ValueError("one")
    |                 ^^^^^^^^^^^^^^^^^^^^^^^
    | ValueError: one
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/home/u/group.py", line 1, in leaf
    |     def leaf(): raise ValueError("one")
    |                 ^^^^^^^^^^^^^^^^^^^^^^^
    | ValueError: one
    | 
    | During handling of the above exception, another exception occurred:
    | 
    | Exception Group Traceback (most recent call last):
    |   File "/home/u/group.py", line 4, in nested
    |     except ValueError as e: raise ExceptionGroup("inner", [e, TypeError("two")])
    |                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    | ExceptionGroup: inner (2 sub-exceptions)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "/home/u/group.py", line 1, in leaf
      |     def leaf(): raise ValueError("one")
      |                 ^^^^^^^^^^^^^^^^^^^^^^^
      | ValueError: one
      +---------------- 2 ----------------
      | TypeError: two
      +------------------------------------
and the program goes on
"""
IMPORTED_SYNTAX = """\
Traceback (most recent call last):
  File "/home/u/impsyn.py", line 1, in <module>
    import syn
  File "/home/u/syn.py", line 2
    print(1
         ^
SyntaxError: '(' was never closed
"""
SYNTAX_38 = """\
  File "syn.py", line 3
    
           ^
SyntaxError: unexpected EOF while parsing
"""
INDENTATION = """\
  File "/home/u/ind.py", line 2
    return 1
    ^^^^^^
IndentationError: expected an indented block after function definition on line 1
"""
RAY = """\
Traceback (most recent call last):
  File "driver.py", line 9, in <module>
    ray.get(f.remote())
  File "/opt/env/lib/python3.10/site-packages/ray/_private/worker.py", line 2667, in get
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::f()\x1b[39m (pid=7, ip=10.0.0.1)
  File "driver.py", line 6, in f
    raise ValueError("x")
ValueError: x
"""
DATA_LOADER = """\
Traceback (most recent call last):
  File "train.py", line 20, in <module>
    for batch in loader:
  File "/opt/env/lib/python3.10/site-packages/torch/_utils.py", line 694, in reraise
    raise exception
RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/env/lib/python3.10/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
  File "data.py", line 5, in __getitem__
    return self.rows[index]
RuntimeError: unable to open shared memory object </torch_1> in read-write mode
"""
LOGURU = """\
2023-11-20 21:17:51.617 | ERROR    | __main__:<module>:9 - failed
Traceback (most recent call last):

  File "/home/u/a.py", line 10, in <module>
    f(1)
    \u2514 <function f at 0x7f>

> File "/home/u/a.py", line 6, in f
    1 / 0
ZeroDivisionError: division by zero
"""
IPYTHON_7 = """\
---------------------------------------------------------------------------
JSONDecodeError                           Traceback (most recent call last)
<ipython-input-2-b6c74154ed6f> in <cell line: 0>()
      1 try:
----> 2     f("{")
      3 except Exception as e:

<ipython-input-1-fac53adfa993> in f(x)
      2     import json
----> 3     return json.loads(x)

~/miniconda/lib/python3.11/json/__init__.py in loads(s, cls, **kw)
    345             parse_constant is None and object_pairs_hook is None and not kw):
--> 346         return _default_decoder.decode(s)
    347     if cls is None:

JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)

The above exception was the direct cause of the following exception:

RuntimeError                              Traceback (most recent call last)
<ipython-input-2-b6c74154ed6f> in <cell line: 0>()
      2     f("{")
      3 except Exception as e:
----> 4     raise RuntimeError("no data") from e

RuntimeError: no data
"""
IPYTHON_8 = """\
In [2]: ---------------------------------------------------------------------------
JSONDecodeError                           Traceback (most recent call last)
Cell In[2], line 2
      1 try:
----> 2     f("{")
      3 except Exception as e:

Cell In[1], line 3, in f(x)
      2 import json
----> 3 return json.loads(x)

File ~/miniconda/lib/python3.11/json/__init__.py:346, in loads(s, cls, object_hook, **kw)
    345         parse_constant is None and object_pairs_hook is None and not kw):
--> 346     return _default_decoder.decode(s)
    347 if cls is None:

JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
"""
IPYTHON_80 = """\
KeyError                                  Traceback (most recent call last)
Input In [3], in <cell line: 1>()
----> 1 d["a"]

KeyError: 'a'
"""
RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/u/richt.py:10 in g                                                     │
│                                                                              │
│    9 │   try:                                                                │
│ ❱ 10 │   │   f("{")                                                          │
│   11 │   except Exception as e:                                              │
│                                                                              │
│ /usr/local/lib/python3.11/json/decoder.py/a/very/long/path/of/a/f/353.py:353 │
│ in raw_decode                                                                │
│                                                                              │
│   352 │   │   try:                                                           │
│ ❱ 353 │   │   │   obj, end = self.scan_once(s, idx)                          │
╰──────────────────────────────────────────────────────────────────────────────╯
JSONDecodeError: Expecting property name enclosed in double quotes: line 1 
column 2 (char 1)

The above exception was the direct cause of the following exception:

╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/u/richt.py:13 in <module>                                              │
│                                                                              │
│ ❱ 13 g()                                                                     │
│                                                                              │
│ /home/u/richt.py:12 in g                                                     │
│                                                                              │
│ ❱ 12 │   │   raise RuntimeError("no data") from e                            │
╰──────────────────────────────────────────────────────────────────────────────╯
RuntimeError: no data
"""
RICH_NARROW = """\
+- Traceback (most recent call last) --+
| /home/miniconda/versions/3.11.7/libr |
| ary/json.py:346 in                   |
| loads                                |
|                                      |
| > 346         return _default_decode |
+--------------------------------------+
KeyError: 'a'
"""
PYTEST = """\
==================================== ERRORS ====================================
___________________________ ERROR at setup of test_e ___________________________

    @pytest.fixture
>   def fx(): raise OSError("boom")
              ^^^^^^^^^^^^^^^^^^^^^
E   OSError: boom

test_p.py:12: OSError
=================================== FAILURES ===================================
____________________________________ test_a ____________________________________

    def test_a():
>       f("{")

test_p.py:5: 
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ 

>           obj, end = self.scan_once(s, idx)
                       ^^^^^^^^^^^^^^^^^^^^^^
E           json.decoder.JSONDecodeError: Expecting property name: line 1 column 2 (char 1)

/usr/lib/python3.11/json/decoder.py:353: JSONDecodeError
_________________________________ TestC.test_c _________________________________
test_p.py:10: in test_c
    raise ImportError("libcudnn.so.8: cannot open shared object file: No such file or directory")
E   ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory
=========================== short test summary info ============================
FAILED test_p.py::test_a - json.decoder.JSONDecodeError: Expecting property n...
"""
PRINTED = [RECURSION_38, CARETS_313, REMOTE, IN_PROCESS, GROUP, IMPORTED_SYNTAX, RAY, DATA_LOADER, LOGURU]
DRAWN = [IPYTHON_7, IPYTHON_8, IPYTHON_80, RICH, RICH_NARROW, SYNTAX_38, INDENTATION]


def only(text: str) -> Message:
    """The only traceback; scan and digest see the same of those that Python prints."""
    found = digest(BytesIO(text.encode()))
    told = [*found.messages, *(message for piece in found.pieces for message in piece.crash.messages or ())]
    (message,) = [one for one in told if one.kind == "python-traceback"]
    return message


def fields(text: str) -> dict[str, str]:
    return only(text).fields


def place(text: str) -> tuple[str | None, str | None, str | None]:
    found = fields(text)
    return found.get("user_file"), found.get("user_line"), found.get("user_function")


@pytest.mark.parametrize(
    ("text", "exception", "said", "where"),
    [
        (RECURSION_38, "RecursionError", "maximum recursion depth exceeded", ("rec.py", "1", "f")),
        (CARETS_313, "KeyError", "'a'", ("/home/u/rec.py", "1", "f")),
        (REMOTE, "ValueError", "in the child", ("/home/u/remote.py", "4", "work")),
        (IN_PROCESS, "ValueError", "in the child", ("/home/u/remote.py", "4", "work")),
        (GROUP, "ExceptionGroup", "outer (2 sub-exceptions)", ("/home/u/group.py", "10", "main")),
        (IMPORTED_SYNTAX, "SyntaxError", "'(' was never closed", ("/home/u/syn.py", "2", "<module>")),
        (SYNTAX_38, "SyntaxError", "unexpected EOF while parsing", ("syn.py", "3", "<module>")),
        (
            INDENTATION,
            "IndentationError",
            "expected an indented block after function definition on line 1",
            ("/home/u/ind.py", "2", "<module>"),
        ),
        (RAY, "ValueError", "x", ("driver.py", "6", "f")),
        (
            DATA_LOADER,
            "RuntimeError",
            "unable to open shared memory object </torch_1> in read-write mode",
            ("data.py", "5", "__getitem__"),
        ),
        (LOGURU, "ZeroDivisionError", "division by zero", ("/home/u/a.py", "6", "f")),
        (IPYTHON_7, "RuntimeError", "no data", ("<ipython-input-2-b6c74154ed6f>", "4", "<module>")),
        (
            IPYTHON_8,
            "JSONDecodeError",
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            ("Cell In[1]", "3", "f"),
        ),
        (IPYTHON_80, "KeyError", "'a'", ("Input In [3]", "1", "<module>")),
        (RICH, "RuntimeError", "no data", ("/home/u/richt.py", "12", "g")),
        (RICH_NARROW, "KeyError", "'a'", ("/home/miniconda/versions/3.11.7/library/json.py", "346", "loads")),
    ],
)
def test_what_was_raised_and_where(
    text: str, exception: str, said: str, where: tuple[str | None, str | None, str | None]
) -> None:
    for around in ("", "epoch 1\n", "x\n" * 3):
        found = fields(around + text + around)
        assert (found["exception"], found["text"]) == (exception, said)
        assert place(around + text + around) == where


def test_a_folded_recursion_counts_all_its_frames() -> None:
    assert fields(RECURSION_38)["frames"] == "999"


def test_of_which_process_or_thread() -> None:
    assert fields(IN_PROCESS)["process"] == "ForkProcess-1"
    thread = "Exception in thread Thread-1 (work):\n" + CARETS_313
    assert fields(thread)["thread"] == "Thread-1 (work)"
    ignored = "Exception ignored in: <function A.__del__ at 0x7f>\n" + CARETS_313
    assert fields(ignored)["ignored"] == "yes"


def test_chains() -> None:
    assert fields(REMOTE)["chained"] == "cause"
    assert fields(REMOTE)["remote"] == "yes"
    assert "first_exception" not in fields(REMOTE), "it was raised anew, there is no other"
    assert fields(DATA_LOADER)["outer_text"] == "Caught RuntimeError in DataLoader worker process 0."
    assert fields(RAY)["outer_exception"] == "ray.exceptions.RayTaskError(ValueError)"
    assert fields(IPYTHON_7)["first_exception"] == "JSONDecodeError"
    assert fields(RICH)["first_exception"] == "JSONDecodeError"
    assert fields(RICH)["chained"] == "cause"


def test_the_leaves_of_a_group() -> None:
    found = fields(GROUP)
    assert (found["first_exception"], found["first_text"], found["parts"]) == ("ValueError", "one", "3")
    assert scan(GROUP) == digest(BytesIO(GROUP.encode())).messages


def test_two_tracebacks_of_two_threads_mixed_line_by_line() -> None:
    stray = CARETS_313.replace("    f(0)\n", "    f(0)\nepoch 3: loss 0.3\n")
    assert fields(stray)["frames"] == "2"


def test_in_one_line_of_a_structured_log() -> None:
    line = json.dumps({"level": "error", "exc_info": CARETS_313.rstrip("\n"), "time": 1})
    assert fields(line)["exception"] == "KeyError"
    assert fields(line)["user_line"] == "1"
    assert fields(line)["text"].startswith("'a'")


def test_quoted_and_indented() -> None:
    for before in ("> ", "    ", "\t"):
        quoted = "\n".join(before + line for line in CARETS_313.rstrip("\n").split("\n"))
        assert place(quoted) == ("/home/u/rec.py", "1", "f"), before


@pytest.mark.parametrize("name", ["ValueError", "json.decoder.JSONDecodeError", "cv2.error", "socket.timeout", "A"])
def test_names_of_exceptions(name: str) -> None:
    assert is_exception(name)


@pytest.mark.parametrize("line", ["done", "epoch: 3", "loading model", "Epoch 3/10", "---"])
def test_a_line_that_follows_a_cut_traceback_is_no_exception(line: str) -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n' + line
    assert "exception" not in fields(text)


def test_pytest() -> None:
    found = digest(BytesIO(PYTEST.encode()))
    failures = [message for piece in found.pieces for message in piece.crash.messages or ()]
    told = [
        (
            one.fields["test"],
            one.fields["exception"],
            one.fields["text"],
            one.fields["user_file"],
            one.fields["user_line"],
        )
        for one in failures
    ]
    assert told == [
        ("ERROR at setup of test_e", "OSError", "boom", "test_p.py", "12"),
        ("test_a", "JSONDecodeError", "Expecting property name: line 1 column 2 (char 1)", "test_p.py", "5"),
        (
            "TestC.test_c",
            "ImportError",
            "libcudnn.so.8: cannot open shared object file: No such file or directory",
            "test_p.py",
            "10",
        ),
    ]
    assert {one.kind for one in failures} == {"test-failed"}
    assert {one.kind for one in found.messages} == {"missing-library"}


@given(cut_and_mixed([*PRINTED, *DRAWN, PYTEST]))
@settings(deadline=None)
def test_any_cut_and_any_mixture(text: str) -> None:
    rows = text.split("\n")
    for index in range(len(rows)):
        _, last = read(rows, index)
        assert index <= last < len(rows)


def test_a_traceback_is_read_in_bounded_work() -> None:
    rows = ["Traceback (most recent call last):", *['  File "a.py", line 1, in f'] * 100_000]
    found, last = read(rows, 0)
    assert int(found["frames"]) <= LINES
    assert last <= LINES
