"""Loads that failed in a running program, as the Windows supervisor saw them: the missing file and who needed it.

Such a message has the field ``load``: the requested library. Python and its packages report the same load without the
missing file; the library's name links the two.
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix, Message
from necropsy.predicates import messages
from necropsy.rule import Found
from necropsy.rules import quoting

_TOLD = ("missing-library", "bad-library-file")
_SOON_S = 10.0
"""A load that failed longer before the end than that has nothing to do with it, as far as can be seen."""


def is_failed_load(message: Message) -> bool:
    """The supervisor saw it."""
    return "load" in message.fields


def told_of(crash: Crash, load: Message) -> tuple[Message, ...]:
    """What the program itself said of this load."""
    name = _stem(load.fields["load"])
    return tuple(
        one
        for one in messages(crash, *_TOLD)
        if not is_failed_load(one) and _stem(one.fields.get("library", "")) == name
    )


def seen_of(crash: Crash, told: Message) -> Message | None:
    """What the supervisor saw of the load that the program complains of."""
    found = (one for one in messages(crash, *_TOLD, "undefined-symbol") if is_failed_load(one))
    return next((one for one in found if told in told_of(crash, one)), None)


def was_the_last(load: Message) -> bool:
    """Nothing was loaded after it, and the end came soon."""
    try:
        seconds = float(load.fields.get("seconds", "inf"))
    except ValueError:
        return False
    return "last" in load.fields and seconds <= _SOON_S


def evidence(crash: Crash, load: Message) -> Found:
    """What the program said of it, and, where it said nothing, when the load was."""
    told = told_of(crash, load)
    if told:
        return (Evidence(claim="the program says that this load failed", seen=told[-1].text, where=told[-1].where),)
    seen = f"{load.fields.get('seconds', '?')} s before the end, and nothing else was loaded after it"
    return (Evidence(claim="it was the last that the program loaded", seen=seen, where=load.where),)


def _stem(path: str) -> str:
    """``outer.cp311-win_amd64.pyd`` is imported as ``outer``."""
    return path.replace("\\", "/").rsplit("/", 1)[-1].partition(".")[0].casefold()


def summary(message: Message) -> str:
    """Which load failed, and what was missing."""
    load, importer, library = (message.fields[name] for name in ("load", "importer", "library"))
    needs = "it needs" if importer == load else f"its library `{importer}` needs"
    if message.kind == "bad-library-file":
        return f"`{load}` could not be loaded: the DLL `{library}` that {needs} is there, but for another processor."
    if lies := message.fields.get("lies"):
        return f"`{load}` could not be loaded: the DLL `{library}` that {needs} is in {lies}, which is not searched."
    return f"`{load}` could not be loaded: the DLL `{library}` that {needs} was not found."


def knows_better(message: Message) -> bool:
    """What is to be done is more than to install what brings the DLL."""
    return "lies" in message.fields or _DEBUG.fullmatch(message.fields["library"].lower()) is not None


def fixes(message: Message) -> tuple[Fix, ...]:
    """What to do, as far as the DLL's name and its place tell."""
    importer, library = message.fields["importer"], message.fields["library"]
    see = Fix(
        text="See all that is missing at once.",
        command=f"dumpbin /dependents {quoting.windows(message.fields.get('path', importer), 'DLL')}",
    )
    if lies := message.fields.get("lies"):
        text = (
            "Name its folder in the program, before the import: since 3.8, Python does not look in PATH for what extensions "
            "need."
        )
        return Fix(text=text, command=f"os.add_dll_directory({quoting.python(lies)})"), see
    if message.kind == "bad-library-file":
        text = (
            f"Install the package that holds `{library}` for the processor that `{importer}` is built for, or put a folder "
            "that has such a file in front."
        )
        return Fix(
            text=text, command=f"dumpbin /headers {quoting.windows(message.fields.get('file', library), 'DLL')}"
        ), see
    return *_of_name(importer, library), see


_PYTHON = re.compile(r"python3(?P<minor>\d+)(?P<debug>_d)?\.dll")
_DEBUG = re.compile(r"(?:msvcp|vcruntime|concrt|vcomp)\d+(?:_\d)?d\.dll|ucrtbased\.dll")


def _of_name(importer: str, library: str) -> tuple[Fix, ...]:
    """As far as the DLL's name tells."""
    if (python := _PYTHON.fullmatch(library.lower())) is not None:
        debug = " (a debug build)" if python["debug"] else ""
        return (
            Fix(
                text=f"`{importer}` was built for Python 3.{python['minor']}{debug}: reinstall it for the Python that runs.",
                command="python -m pip install --force-reinstall --no-cache-dir PACKAGE",
            ),
        )
    if _DEBUG.fullmatch(library.lower()):
        return (
            Fix(
                text=f"`{importer}` was built by Visual C++ for debugging, and `{library}` comes with Visual Studio only: "
                "build or install it as a release."
            ),
        )
    return (
        Fix(
            text=f"Install the package that holds `{library}` in the version that `{importer}` was built with, or look where it is.",
            command=f"where /R C:\\ {quoting.windows(library, 'DLL')}",
        ),
        Fix(
            text="Then put its folder on PATH; for an extension of Python from 3.8 on, name it in the program, before the "
            "import.",
            command='os.add_dll_directory(r"FOLDER")',
        ),
    )


def advice(text: str, command: str) -> tuple[Fix, ...]:
    """One piece of advice, with the command that belongs to it."""
    return (Fix(text=text, command=command),)
