"""An extension was built for another version of NumPy.

What happened
-------------
A compiled extension contains the layout of NumPy's structures from when it was built. NumPy 2 changed them. The
extension was built for NumPy 1 and runs with 2, or it was built for a newer NumPy than the installed one.

How to be sure
--------------
``A module that was compiled using NumPy 1.x cannot be run in NumPy 2``, ``numpy.dtype size changed`` or ``module
compiled against ABI version``, and the exception that ended the program says that numpy's C interface could not be
imported.

How to fix it now
-----------------
First find out which of the two is too old. ``cannot be run in NumPy 2`` and ``numpy.dtype size changed ... Expected
96 from C header, got 88``: the extension was built for NumPy 1 and met NumPy 2. Either ``pip install 'numpy<2'``, or
a newer version of the package that is named; TensorFlow works with NumPy 2 from 2.18 on. ``numpy.ndarray size changed
... Expected 96 from C header, got 88`` and ``API version 0x10 but this version of numpy is 0xf`` mean the opposite:
the extension was built for a newer NumPy than the installed one. The fix is ``pip install -U 'numpy>=1.23'``. The
number alone does not decide: NumPy 2 made ``dtype`` smaller (96 bytes, then 88), while ``ndarray`` only ever grew (80
bytes, 88 from 1.20 on, 96 from 1.22 on).

How to prevent it
-----------------
Pin numpy beside the packages that were built against it; build extensions against NumPy 2: they run with both.

What it is often mistaken for
-----------------------------
A broken NumPy: reinstalling the same version changes nothing. The warning alone may be survived; only the exception
counts.

Sources
-------
- https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
- https://numpy.org/doc/stable/dev/depending_on_numpy.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from necropsy.model import Crash, Culprit, Fix, Message, PythonPlace
from necropsy.predicates import died_by, messages, quote, real_fault
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import compatibility, quoting
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence, last_traceback, package_of


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "numpy-abi")
    if not found:
        return None
    # The warning comes first, the exception that quotes NumPy's C interface last.
    segfault = real_fault(crash) and bool(died_by(crash, "SIGSEGV"))
    graded = [(message, told_of_the_end(crash, message, decisive=segfault)) for message in found]
    sure = [(message, grade) for message, grade in graded if grade is not None]
    if not sure:
        return None
    message, confidence = sure[-1]
    traceback = last_traceback(crash)
    numpy = (crash.libraries or {}).get("numpy")
    here = f" (here {numpy})" if numpy else ""
    importer = _importer(crash)
    package = importer.module if importer is not None else None
    built = _built(numpy, found)
    return Finding(
        evidence=(
            quote(message, "NumPy's C interface does not fit"),
            *(quote(other, "a warning before it") for other in found[:1] if other is not message),
            *exit_evidence(crash),
        ),
        summary=f"{f'An extension of {package}' if package else 'An extension module'} was built for another version of NumPy than the one that is installed{here}{_versions(built, numpy)}.",
        confidence="likely" if built is not None and built.contradicted and confidence == "certain" else confidence,
        culprit=importer or (teller(crash) if traceback is not None else None),
        fixes=_fixes(crash, built, numpy, _PUBLISHED_AS.get(package or "", package or "PACKAGE")),
    )


@dataclass(frozen=True)
class _Built:
    """The NumPy version the extension was built for, from its message.

    ``wants``: the oldest suitable NumPy, if the installed one is older; ``None`` if it was built for NumPy 1 and NumPy
    2 is installed. ``contradicted``: whether the installed version cannot have printed this.
    """

    wants: str | None
    contradicted: bool = False


_GREW = {80: "1.20", 88: "1.20", 96: "1.22"}
"""Bytes of ``numpy.ndarray`` on 64-bit machines, and the first NumPy that has so many."""
_OF_2 = 0x2000000
"""NumPy 2's ``NPY_ABI_VERSION``; NumPy 1's is 0x1000009 (numpyconfig.h)."""


def _built(numpy: str | None, found: tuple[Message, ...]) -> _Built | None:
    installed = compatibility.version(numpy) if numpy else None
    for message in found:
        if (built := _by_size(installed, message.fields) or _by_number(message.fields)) is not None:
            return built
    if any("compiled using NumPy 1.x" in message.text for message in found):
        return _Built(None, contradicted=installed is not None and installed < (2,))
    return _Built(None) if installed is not None and installed >= (2,) else None


def _by_size(installed: tuple[int, ...] | None, fields: dict[str, str]) -> _Built | None:
    """By the size of a NumPy type: all grew, but ``dtype`` shrank in NumPy 2 (measured: 96, now 88)."""
    if "expected" not in fields:
        return None
    expected, got = int(fields["expected"]), int(fields["got"])
    if fields.get("type") == "dtype":
        if installed is not None and installed < (1, 20):
            return _Built("1.20")
        for_1 = expected > got
        contradicted = installed is not None and for_1 is not (installed >= (2,))
        return _Built(None if for_1 else "2.0", contradicted=contradicted)
    if expected > got:
        wants = _GREW.get(expected, "1.20") if fields.get("type") == "ndarray" else "1.20"
        least = compatibility.version(wants)
        return _Built(wants, contradicted=installed is not None and least is not None and installed >= least)
    return None


def _by_number(fields: dict[str, str]) -> _Built | None:
    if "built" not in fields or "loaded" not in fields:
        return None
    built, loaded = int(fields["built"], 16), int(fields["loaded"], 16)
    if built <= loaded:
        return _Built(None)
    if built >= _OF_2:
        return _Built("2.0")
    return _Built(compatibility.numpy_of_api(fields["built"]) or "1.20")


def _versions(built: _Built | None, numpy: str | None) -> str:
    if built is None:
        return ""
    if built.contradicted:
        return f": {'it wants ' + built.wants + ' or later' if built.wants else 'it was built for NumPy 1 and met NumPy 2'}, so another NumPy than {numpy} was loaded"
    return f": it wants {built.wants} or later" if built.wants else ": it was built for NumPy 1"


_PUBLISHED_AS = {"cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "PIL": "pillow"}
"""Names by which a package is imported, and by which pip knows it."""


def _fixes(crash: Crash, built: _Built | None, numpy: str | None, package: str) -> tuple[Fix, ...]:
    which = Fix(
        text="See which NumPy this interpreter loads: version and folder.",
        command='python -c "import numpy; print(numpy.__version__, numpy.__file__)"',
    )
    if built is not None and built.contradicted:
        there_are_two = Fix(
            text=f"The message does not fit NumPy {numpy}: look for a second NumPy on sys.path, and remove one of them.",
            command=which.command,
        )
        return (there_are_two, *_remedies(crash, built, package))
    return _remedies(crash, built, package) if built is not None else (which, *_remedies(crash, _Built(None), package))


def _remedies(crash: Crash, built: _Built, package: str) -> tuple[Fix, ...]:
    if built.wants:
        return (
            Fix(
                text="The NumPy that is installed is older than what the extension was built for: install a newer one.",
                command=f"pip install -U {quoting.posix(f'numpy>={built.wants}', 'numpy')}",
            ),
            Fix(text="Or install a version of that package that was built for the older NumPy."),
        )
    tensorflow = (crash.libraries or {}).get("tensorflow")
    asked = compatibility.needs_of_tensorflow(tensorflow, "numpy") if tensorflow else None
    old = asked if asked is not None and re.search(r"(?:^|,)(?:<2(?:\.0)*(?:,|$)|<=?1\.|~=1\.)", asked) else "<2"
    return (
        Fix(
            text="Install the NumPy that it was built for.",
            command=f"pip install {quoting.posix('numpy' + old, 'numpy')}",
        ),
        Fix(
            text="Or install a version of that package that was built for NumPy 2 (TensorFlow: 2.18 and later).",
            command=f"pip install -U {quoting.package(package)}",
        ),
    )


def _importer(crash: Crash) -> Culprit | None:
    """The package that imported NumPy: the innermost place of a traceback outside NumPy."""
    for thread in crash.threads or ():
        for frame in thread.python or ():
            if (package := package_of(frame.source or "")) not in {None, "numpy"}:
                return _in(package, PythonPlace(function=frame.function, file=frame.source, line=frame.line))
    # NumPy 2 prints where the module was imported before the exception that it leads to; who lies nearer counts.
    for message in messages(crash, "python-traceback"):
        fields = message.fields
        for file, line, function in (
            ("file", "source_line", "function"),
            ("caller_file", "caller_line", "caller_function"),
        ):
            if (package := package_of(fields.get(file, ""))) not in {None, "numpy"}:
                number = fields.get(line)
                place = PythonPlace(
                    function=fields.get(function), file=fields[file], line=int(number) if number else None
                )
                return _in(package, place)
    return None


def _in(package: str | None, place: PythonPlace) -> Culprit:
    return Culprit(module=package, function=place.function, source=place.file, line=place.line, python=place)


RULE = Rule(
    _match,
    needs=("messages",),
    beats=("python-exception", "exit-status-only"),
    tried=Tried(
        advice="Install the NumPy that it was built for.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with pandas 2.1.4 on NumPy 2.0.2: "
            "after the printed ``pip install 'numpy<2'`` it was imported."
        ),
    ),
    hit="""
        exit 1
        log A module that was compiled using NumPy 1.x cannot be run in
        log NumPy 2.1.3 as it may crash. To support both 1.x and 2.x
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: numpy.core.multiarray failed to import
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log ImportError: cannot import name 'bool' from 'numpy'
    """,
)
