"""A library needs a function that no loaded library has.

What happened
-------------
The dynamic linker loaded a library that uses a function which no loaded library offers. The library was built against
another version of something: an op against another TensorFlow, with the other C++ string ABI
(``_GLIBCXX_USE_CXX11_ABI``), or against another CUDA or Python.

How to be sure
--------------
``undefined symbol: NAME`` is the text of the exception that ended the program. The name tells which library's version
is wrong: ``_ZN10tensorflow...`` TensorFlow's; ``B5cxx11`` or ``__cxx11`` in it: the string ABI; ``_ZN3c10...``
PyTorch's; ``Py...`` Python's. On Windows, only the exit code says it: 0xC0000139 (-1073741511), 0xC0000138,
0xC06D007F (-1066598273).

How to fix it now
-----------------
Rebuild the op against the TensorFlow that is installed, with its own flags: ``tf.sysconfig.get_compile_flags()`` and
``get_link_flags()``. ``c++filt NAME`` makes the name readable. PyTorch: torch, torchvision and torchaudio of one
release belong together. ``symbol cublasLt... not defined in file libcublasLt.so.11``: two versions of CUDA meet,
``unset LD_LIBRARY_PATH`` leaves pip's.

How to prevent it
-----------------
Build ops where they are used, or pin the framework's exact version in their package.

What it is often mistaken for
-----------------------------
A missing library: this one was found, but it is another version. A missing ``-l`` flag of your own.

Sources
-------
- https://www.tensorflow.org/guide/create_op#compile_the_op_using_your_system_compiler_tensorflow_binary_installation
- https://gcc.gnu.org/onlinedocs/libstdc++/manual/using_dual_abi.html
"""

from __future__ import annotations

import re

from necropsy.lazy_re import regex
from necropsy.model import Confidence, Crash, Fix, Message
from necropsy.predicates import messages, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import failed_loads, quoting
from necropsy.rules.experiment_proposals import of_library_path
from necropsy.rules.failed_loads import is_failed_load
from necropsy.rules.loading import ended_by
from necropsy.rules.python import exit_evidence, last_traceback, python_culprit
from necropsy.rules.windows_loader import delayed_symbol, refused_symbol

_ORDER: tuple[Confidence, ...] = ("certain", "likely", "possible")


def _match(crash: Crash) -> Finding | None:
    if (delayed := delayed_symbol(crash)) is not None:
        return delayed
    found = messages(crash, "undefined-symbol")
    if not found:
        return refused_symbol(crash)
    graded = [(one, grade) for one in found if (grade := ended_by(crash, one.text)) is not None]
    if not graded:
        return None
    message, confidence = min(graded, key=lambda one: _ORDER.index(one[1]))
    symbol = message.fields["symbol"]
    library = message.fields.get("library")
    where = f"which `{library}` does not offer" if library else "which no loaded library offers"
    if _asked_by_name(crash, symbol):
        return _not_there(crash, message, confidence)
    if is_failed_load(message):
        seen = quote(message, "what the library imports, and what the DLL that was there offers")
        evidence = (seen, *failed_loads.evidence(crash, message))
    else:
        evidence = (quote(message, "the dynamic linker's message"),)
    return Finding(
        evidence=(*evidence, *exit_evidence(crash)),
        summary=f"{_who(message)} needs `{symbol}`, {where}: it was built against another version{_of(symbol)}.",
        confidence=confidence,
        culprit=python_culprit(crash),
        fixes=_fixes(message, symbol, library),
    )


def _asked_by_name(crash: Crash, symbol: str) -> bool:
    """Python requested a function by name (ctypes, cffi): an AttributeError, without a rejected library."""
    raised = last_traceback(crash)
    return (
        raised is not None
        and raised.fields.get("exception") == "AttributeError"
        and f"undefined symbol: {symbol}" in raised.fields.get("text", "")
    )


def _not_there(crash: Crash, message: Message, confidence: Confidence) -> Finding:
    symbol = message.fields["symbol"]
    return Finding(
        evidence=(quote(message, "the dynamic linker's message"), *exit_evidence(crash)),
        summary=f"Python asked a library for a function named `{symbol}`, and the library has none with that name.",
        confidence=confidence,
        culprit=python_culprit(crash),
        title="A library has no function with this name",
        fixes=(
            Fix(
                text='Check which names the library exports: C++ names are mangled without extern "C", and static or hidden ones are not exported.',
                command="nm -D --defined-only LIBRARY.so",
            ),
        ),
    )


def _who(message: Message) -> str:
    return f"`{message.fields['importer']}`" if is_failed_load(message) else "A library"


_CUDA = regex(r"lib(?:cu[a-z]+|nv[a-zA-Z]+|nccl)", re.IGNORECASE)


def _fixes(message: Message, symbol: str, library: str | None) -> tuple[Fix, ...]:
    if (
        is_failed_load(message)
        or "loader" in message.fields
        or "flat namespace" in message.text
        or "dlopen(" in message.text
    ):
        return _ELSEWHERE
    if _CUDA.match((library or "").rsplit("/", 1)[-1]):
        return (
            Fix(
                text=f"Two copies of CUDA's libraries of different versions meet: `{library}` was found in another place than what needs it. Remove the system's CUDA from LD_LIBRARY_PATH, and keep pip's or conda's.",
                command="unset LD_LIBRARY_PATH; pip list | grep -i nvidia",
            ),
            Fix(
                text="Reinstall the framework, so that its own libraries are of one version.",
                command="pip install --force-reinstall torch",
            ),
        )
    readable = Fix(text="Make the name readable.", command=f"c++filt {quoting.posix(symbol, 'SYMBOL')}")
    whose = _of(symbol)
    if "PyTorch" in whose:
        return (
            Fix(
                text="Install the extension for the PyTorch that is installed, or rebuild it against it: torch, torchvision and torchaudio of one release belong together.",
                command="pip list | grep -i torch; pip install --force-reinstall --no-cache-dir --no-build-isolation PACKAGE",
            ),
            readable,
        )
    if whose == " of Python":
        return (
            Fix(
                text="The extension was built for another version of Python: install it for this one.",
                command="python --version; pip install --force-reinstall --no-cache-dir PACKAGE",
            ),
            readable,
        )
    if not whose:
        needs = f"`{message.fields['importer']}`" if message.fields.get("importer") else "what needs it"
        return (
            Fix(
                text=f"Find the library that defines `{symbol}`, and link {needs} with it "
                "(or load that one first, with RTLD_GLOBAL); if an installed one lacks the name, it is too old or too new.",
                command=f"nm -D --defined-only LIBRARY.so | grep {quoting.posix(symbol, 'SYMBOL')}",
            ),
            readable,
        )
    return (
        Fix(
            text="Rebuild the op against the TensorFlow that is installed, with its own flags.",
            command="python -c 'import tensorflow as tf; print(*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags())'",
        ),
        readable,
    )


_ELSEWHERE = (
    Fix(
        text="Update the library that lacks it, and the package that needs it, to versions that were made for each other."
    ),
    Fix(
        text="Another version of the library may be found first: look where it is loaded from.",
        command="where LIBRARY.dll (Windows); otool -L FILE (macOS)",
    ),
)


def _of(symbol: str) -> str:
    if "B5cxx11" in symbol or "__cxx11" in symbol:
        return " or with the other setting of _GLIBCXX_USE_CXX11_ABI"
    for mark, name in (
        ("10tensorflow", "TensorFlow"),
        ("3tsl", "TensorFlow"),
        ("4absl", "Abseil (it comes with TensorFlow)"),
        ("3c10", "PyTorch"),
        ("2at", "PyTorch"),
    ):
        if mark in symbol:
            return f" of {name}"
    return " of Python" if symbol.startswith(("Py", "_Py")) else ""


RULE = Rule(
    _match,
    title="A library was built against another version",
    beats=("python-exception", "exit-status-only", "abort", "killed-by-signal"),
    experiments=of_library_path,
    tried=Tried(
        advice="Find the library that defines the symbol, and link what needs it with that library.",
        result="crash gone",
        how="The printed ``nm`` found the symbol in a library; linked with it, the library could be loaded.",
        test="tests/rules/test_advice.py::test_undefined_symbol",
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log tensorflow.python.framework.errors_impl.NotFoundError: /tmp/op.so: undefined symbol: ncclCommInitRankConfig
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log OSError: libfoo.so.1: cannot open shared object file: No such file or directory
    """,
)
