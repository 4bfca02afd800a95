"""NumPy worked on an array whose memory is not mapped.

What happened
-------------
One of NumPy's own loops (a copy, a cast, a sum, the inner loop of a function) went over an array and met an address
that is not mapped. NumPy checks the bounds of every array that it makes itself. So the array was a view with a wrong
description: its shape, strides or address do not fit its memory, or that memory was freed.

How to be sure
--------------
The fault is in NumPy's core, in a loop over arrays, and the address is in no mapping. Which array it was is not in
the machine's registers; the line of Python names the operation.

How to fix it now
-----------------
Check the arrays of the named line, and how each was made. Usual causes are ``np.lib.stride_tricks.as_strided`` with a
shape that is too large (``sliding_window_view`` checks), and ``np.frombuffer`` or ``np.ctypeslib.as_array`` on memory
that was freed or is too short. Others are an ``__array_interface__`` or ``__cuda_array_interface__`` with a wrong
pointer, and a ``memmap`` of a file that was cut. Also check arrays that an extension made by
``PyArray_SimpleNewFromData`` and whose memory it has freed. Print ``a.shape``, ``a.strides``, ``a.base`` and
``a.flags.owndata``. A copy taken while the memory is alive (``a.copy()``) is safe.

How to prevent it
-----------------
Keep the owner of the memory as the array's ``base``; use functions that check bounds where they exist.

What it is often mistaken for
-----------------------------
A bug of NumPy: its loop is innocent. A heap that was overwritten by other native code can damage an array's
description too; the modules that were loaded are listed.

Sources
-------
- https://numpy.org/doc/stable/reference/generated/numpy.lib.stride_tricks.as_strided.html
- https://numpy.org/doc/stable/reference/arrays.interface.html
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Fix
from necropsy.predicates import bare_name, died_by
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules.culprit import python_line, python_place
from necropsy.rules.experiment_proposals import of_objects
from necropsy.rules.machinery import named, of_numpy, suspects, where_it_died
from necropsy.rules.pointers import bad_access, evidence


def _match(crash: Crash) -> Finding | None:
    found = of_numpy(crash)
    access = bad_access(crash)
    if found is None or access is None:
        return None
    place, _ = python_place(crash)
    name = f"`{bare_name(found.frame.function)}`" if found.frame.function else "code"
    did = {"read": "read", "write": "wrote"}.get(access.kind or "", "used")
    return Finding(
        evidence=(
            *died_by(crash, "SIGSEGV", "SIGBUS"),
            *where_it_died(found),
            *evidence(crash, access),
            *_others(crash),
            *python_line(crash),
        ),
        summary=f"NumPy's own {name} {did} an array at an address that is not mapped: the array is a view that does not fit its memory, or that memory was freed.",
        confidence="likely",
        culprit=Culprit(python=place) if place is not None else None,
        fixes=(
            Fix(
                text="Check how the arrays of this line were made: as_strided, frombuffer, ctypes or an array interface with a "
                "wrong shape or strides, or memory whose owner was freed. Print the properties of each of them.",
                command="print(a.shape, a.strides, a.dtype, type(a.base), a.flags.owndata)",
            ),
            Fix(
                text="Take a copy while the memory is alive, and replace as_strided by sliding_window_view, which checks.",
                command="a = a.copy()",
            ),
        ),
    )


def _others(crash: Crash) -> Found:
    loaded = tuple(one for one in suspects(crash) or () if not one.name.startswith("numpy"))
    if not loaded:
        return ()
    claim = "native code beside NumPy and the interpreter that may have made the array"
    return (Evidence(claim=claim, seen=named(loaded), where="list of modules"),)


RULE = Rule(
    _match,
    title="NumPy used an array whose memory is not mapped",
    needs=("fault", "frames"),
    beats=("null-dereference", "invalid-read", "invalid-write"),
    experiments=of_objects,
    tried=Tried(
        advice="Print the properties of each array of the line, by the printed line.",
        result="cause proved",
        how="The printed line showed strides of 4,096 bytes over an array of ten numbers.",
        test="tests/rules/test_advice.py::test_the_shape_of_a_view_shows_what_is_wrong",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x7f2000000000 read
        at 0x7f0000001000 movsd xmm0, qword ptr [rsi]
        operand read [rsi] = 0x7f2000000000 size 8 rsi=0x7f2000000000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame DOUBLE_pairwise_sum @ _multiarray_umath.cpython-311-x86_64-linux-gnu.so takes 16
        frame DOUBLE_add @ _multiarray_umath.cpython-311-x86_64-linux-gnu.so takes 16
        frame cfunction_vectorcall_FASTCALL_KEYWORDS @ libpython3.11.so.1.0 takes 32
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 320
        python main /home/u/train.py:3
        module /usr/lib/libpython3.11.so.1.0
        module /v/lib/python3.11/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7f2000000000 read
        at 0x7f0000001000 movsd xmm0, qword ptr [rsi]
        operand read [rsi] = 0x7f2000000000 size 8 rsi=0x7f2000000000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        frame DOUBLE_sum @ ext.so takes 16
        frame PyUFunc_GenericFunction @ _multiarray_umath.cpython-311-x86_64-linux-gnu.so takes 16
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 320
        python main /home/u/train.py:3
        module /usr/lib/libpython3.11.so.1.0
        module /home/u/ext.so
    """,
)
