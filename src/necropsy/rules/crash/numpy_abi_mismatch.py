"""An extension was built for another version of NumPy.

What happened
-------------
A compiled extension contains the layout of NumPy's structures from when it was built. NumPy 2 changed them. The extension was built for
NumPy 1 and runs with 2 (or was built for a newer NumPy than the one that is installed).

How to be sure
--------------
``A module that was compiled using NumPy 1.x cannot be run in NumPy 2``, ``numpy.dtype size changed`` or ``module compiled against ABI
version``, and the exception that ended the program says that numpy's C interface could not be imported.

How to fix it now
-----------------
Either ``pip install 'numpy<2'``, or a newer version of the package that is named. TensorFlow works with NumPy 2 from 2.18 on. ``API version 0x10
but this version of numpy is 0xf``: the other way round, ``pip install -U 'numpy>=1.23'``. ``Expected 96 from C header, got 88``: it was built for
NumPy 2 and met NumPy 1.

How to prevent it
-----------------
Pin numpy beside the packages that were built against it; build extensions against NumPy 2: they run with both.

What it is often mistaken for
-----------------------------
A broken NumPy: reinstalling the same version changes nothing. The warning alone may be survived; only the exception counts.

Sources
-------
- https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
- https://numpy.org/doc/stable/dev/depending_on_numpy.html
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Fix, Message, PythonPlace
from necropsy.questions import died_by, messages, quote, real_fault
from necropsy.rule import Finding, Rule
from necropsy.rules import builds, quoting
from necropsy.rules.python import exit_evidence, last_traceback, package_of
from necropsy.rules.told import teller, told_of_the_end


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
    return Finding(
        evidence=(
            quote(message, "NumPy's C interface does not fit"),
            *(quote(other, "a warning before it") for other in found[:1] if other is not message),
            *exit_evidence(crash),
        ),
        summary=f"{f'An extension of {package}' if package else 'An extension module'} was built for another version of NumPy than the one that is installed{here}{_versions(found)}.",
        confidence=confidence,
        culprit=importer or (teller(crash) if traceback is not None else None),
        fixes=_fixes(crash, found, _PUBLISHED_AS.get(package or "", package or "PACKAGE")),
    )


_FOR_2 = 96
"""Bytes of NumPy 2's dtype structure; NumPy 1's has 88."""


def _wants_newer(found: tuple[Message, ...]) -> str | None:
    """The least NumPy that the extension wants, where the one that is installed is older; None where it is newer."""
    for message in found:
        fields = message.fields
        if int(fields.get("expected", "0")) > int(fields.get("got", "0")):
            return "2.0" if fields["expected"] == str(_FOR_2) else "1.20"
        built, loaded = fields.get("built"), fields.get("loaded")
        if built and loaded and int(built, 16) > int(loaded, 16) and int(built, 16) < 1 << 16:
            return builds.numpy_of_api(built)
    return None


def _versions(found: tuple[Message, ...]) -> str:
    wanted = _wants_newer(found)
    return f": it wants {wanted} or later" if wanted else ""


_PUBLISHED_AS = {"cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "PIL": "pillow"}
"""Names by which a package is imported, and by which pip knows it."""


def _fixes(crash: Crash, found: tuple[Message, ...], package: str) -> tuple[Fix, ...]:
    if wanted := _wants_newer(found):
        return (
            Fix(
                text="The NumPy that is installed is older than what the extension was built for: install a newer one.",
                command=f"pip install -U {quoting.posix(f'numpy>={wanted}', 'numpy')}",
            ),
            Fix(text="Or install a version of that package that was built for the older NumPy."),
        )
    tensorflow = (crash.libraries or {}).get("tensorflow")
    asked = builds.needs_of_tensorflow(tensorflow, "numpy") if tensorflow else None
    return (
        Fix(
            text="Install the NumPy that it was built for.",
            command=f"pip install {quoting.posix('numpy' + (asked or '<2'), 'numpy')}",
        ),
        Fix(
            text="Or install a version of that package that was built for NumPy 2 (TensorFlow: 2.18 and later).",
            command=f"pip install -U {quoting.package(package)}",
        ),
    )


def _importer(crash: Crash) -> Culprit | None:
    """The package whose import called NumPy's: the innermost place of a traceback that is in another package than NumPy."""
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
    name="numpy-abi-mismatch",
    subject=Crash,
    title="An extension was built for another version of NumPy",
    match=_match,
    page=__doc__ or "",
    needs=("messages",),
    beats=("python-exception", "exit-status-only"),
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
    references=("https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",),
)
