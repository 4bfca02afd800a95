"""A Python object was damaged before CPython used it.

What happened
-------------
A function of CPython (one that frees objects, the garbage collector, the allocator of small objects, or a function of
lists, dictionaries and types) used an object that was no longer valid. CPython's code did what it always does. Some
native code had damaged the object before. It may have released a reference that it did not own, so that the object
was freed while in use. It may have written past the end of its memory, or put a null pointer where an object belongs.
Or it still ran after the interpreter had ended.

How to be sure
--------------
The function that died and its callers up to the Python code all belong to CPython. The fault itself (a null pointer,
a garbage address) is evidence of the damage, not its cause. The crash does not show which code did the damage. The
verdict lists the native modules that were loaded, those on the stack first. An experiment decides: with
``PYTHONMALLOC=debug`` or ``python -X dev``, the program crashes nearer to the damage, or CPython names it (*bad
trailing pad byte*, *deallocating None*).

How to fix it now
-----------------
Run it once as ``PYTHONMALLOC=debug python -X dev ...``, and once with ``LD_PRELOAD=libc_malloc_debug.so.0
MALLOC_CHECK_=3``. In your own extension, count references. What ``PyList_GetItem``, ``PyTuple_GetItem`` and
``PyDict_GetItem`` return is borrowed and must not be released. ``PyTuple_SET_ITEM`` and ``PyModule_AddObject`` take
over the reference that they are given. With ctypes, set ``argtypes`` and ``restype`` of every function that is
called. Keep each callback and buffer referenced as long as native code may use it. Otherwise leave out the listed
packages one by one, or install other versions of them.

How to prevent it
-----------------
Test extensions under ``python -X dev`` and a debug build of CPython; let pybind11, nanobind or Cython count the
references.

What it is often mistaken for
-----------------------------
A null pointer in CPython. A bug of CPython, which is possible too, and likely where no other native code was loaded
(rule interpreter-bug). A Python C function that an extension calls with a null pointer: there the extension is the
next frame, and the rule is null-dereference.

Sources
-------
- https://docs.python.org/3/c-api/intro.html#reference-counts
- https://docs.python.org/3/library/devmode.html
- https://docs.python.org/3/c-api/memory.html#customize-memory-allocators
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Fix, Possibility
from necropsy.predicates import bare_name, died_by
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.culprit import python_line, python_place
from necropsy.rules.experiment_proposals import of_objects
from necropsy.rules.foreign_calls import declare, undeclared
from necropsy.rules.machinery import Suspect, named, of_python, only_the_interpreter, suspects, where_it_died
from necropsy.rules.pointers import bad_access, evidence
from necropsy.rules.shutdown import after_python, while_ending


def _match(crash: Crash) -> Finding | None:
    found = of_python(crash)
    if found is None or only_the_interpreter(crash):
        return None
    access = bad_access(crash)
    place, _ = python_place(crash)
    loaded = suspects(crash)
    ending = after_python(crash) or while_ending(crash)
    name = f"`{bare_name(found.frame.function)}`" if found.frame.function else "code"
    when = ", while Python was ending" if ending else ""
    outlived = ", or ran on after the interpreter had ended" if ending else ""
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            *undeclared(crash),
            *where_it_died(found),
            *(evidence(crash, access) if access is not None else ()),
            *ending,
            *_loaded(loaded),
            *python_line(crash),
        ),
        summary=f"Python's own {name} used a block of memory that is not mapped{when}: native code freed it while a buffer or a string still pointed to it, or passed a wrong address{outlived}."
        if found.copied
        else f"A Python object was damaged before Python used it{when}: native code overwrote it, freed it, or released a reference that it did not own{outlived}.",
        confidence="likely",
        culprit=Culprit(python=place) if place is not None else None,
        fixes=(*(_KEEP if found.copied else ()), *declare(crash, loaded), *_fixes(loaded)),
        title="Memory behind a Python object was freed" if found.copied else None,
        possible=(
            Possibility(
                cause="A bug of this CPython version",
                rule="interpreter-bug",
                decide="Does it die without the listed modules too, or no longer with a newer version of Python?",
            ),
        ),
    )


_KEEP = (
    Fix(
        text="Keep the owner of the memory behind each buffer of this line (memoryview, from_address, from_buffer, an array) alive "
        "until its last use, and check address and length where it was made.",
    ),
)


def _loaded(loaded: tuple[Suspect, ...] | None) -> Found:
    if not loaded:
        return ()
    claim = "native code that was loaded and is not the interpreter's own"
    return (Evidence(claim=claim, seen=named(loaded), where="list of modules"),)


def _fixes(loaded: tuple[Suspect, ...] | None) -> tuple[Fix, ...]:
    check = Fix(
        text="Let Python check its objects: it then crashes nearer to the damage, or names it.",
        command="PYTHONMALLOC=debug python -X dev ...",
    )
    glibc = Fix(
        text="Let glibc check each block too: that finds what native code does to its own memory.",
        command="LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 python ...",
    )
    own = [one.name for one in loaded or () if one.whose is not None and one.whose.owner == "native-code"]
    others = [one.name for one in loaded or () if one.whose is not None and one.whose.owner == "package"]
    calls = [one.name for one in loaded or () if one.whose is None]
    fixes: list[Fix] = []
    if own:
        text = (
            f"In {', '.join(own[:3])}, count the references: release none that is borrowed (PyList_GetItem, "
            "PyTuple_GetItem, PyDict_GetItem), and add one for each that is kept or returned (Py_NewRef)."
        )
        fixes.append(Fix(text=text))
    if calls and not any(one.on_stack for one in loaded or () if one.name not in calls):
        fixes.append(Fix(text=_of_calls(calls)))
    if others and not own:
        text = f"Leave out {', '.join(others[:3])}, one by one, or install another version: without the faulty one, the program survives."
        fixes.append(Fix(text=text))
    return (check, *fixes, glibc)


def _of_calls(names: list[str]) -> str:
    if names == ["cffi"]:
        return "With cffi, keep what ffi.new and ffi.callback return referenced as long as native code may use it."
    return (
        "With ctypes, set argtypes and restype of each function that is called, and keep each callback and buffer "
        "referenced as long as native code may use it."
    )


RULE = Rule(
    _match,
    title="A Python object was damaged",
    needs=("fault", "frames"),
    beats=("null-dereference", "invalid-read", "invalid-write", "bad-jump", "heap-corruption"),
    experiments=of_objects,
    tried=Tried(
        advice="Let Python check its objects, by the printed command.",
        result="cause proved",
        how=(
            "The printed command ended the program with *bad trailing pad byte* for the block that C had "
            "overrun, where the plain run died in the destruction of another object."
        ),
        test="tests/rules/test_advice.py::test_a_damaged_object_is_named_by_pythons_checks",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x30 read
        at 0x7f0000001000 jmp qword ptr [rax + 0x30]
        operand read [rax + 0x30] = 0x30 size 8 rax=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame _Py_Dealloc @ libpython3.11.so.1.0 takes 16
        frame list_dealloc @ libpython3.11.so.1.0 takes 32
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 320
        python main /home/u/train.py:3
        module /usr/lib/libpython3.11.so.1.0
        module /home/u/ext.so
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x8 read
        at 0x7f0000001000 mov rax, qword ptr [rdi + 8]
        operand read [rdi + 8] = 0x8 size 8 rdi=0x0
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame type_of @ ext.so in ext.c:31 takes 32
        frame cfunction_call @ libpython3.11.so.1.0 takes 32
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 320
        python main /home/u/train.py:3
        module /usr/lib/libpython3.11.so.1.0
        module /home/u/ext.so
    """,
)
