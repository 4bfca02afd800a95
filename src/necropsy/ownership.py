"""Whose code a frame is: the user's own, a package's, the framework's, the interpreter's or the system's.

Only paths and names count, so another machine gives the same answer. A frame without a known file has no known owner.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from necropsy.data import table
from necropsy.frame_filter import file_name, is_interpreter, is_system
from necropsy.lazy_re import regex
from necropsy.model import Crash, Culprit, Fold, Frame, Module, Owner, Thread, is_typed, typed_frames

_INSTALLED = regex(r"[/\\](?:site|dist)-packages[/\\](?P<top>[^/\\]+)|[/\\](?P<egg>[^/\\]+)-\d[^/\\]*\.egg[/\\]")
_STANDARD_LIBRARY = regex(
    r"[/\\]lib(?:64|32)?[/\\]python\d\.\d+[/\\]|\\(?:Lib|DLLs)\\|[/\\]python\d+\.zip[/\\]",
    re.IGNORECASE,
)
_OF_THE_SYSTEM = regex(
    r"(?:/usr)?(?:/local)?/(?:lib|lib32|lib64|libx32|libexec|bin|sbin|cuda[^/]*)/|/usr/share/|/System/|/Library/|/nix/store/|"
    r"[A-Za-z]:\\Windows\\",
    re.IGNORECASE,
)
_GENERATED = "__autograph_generated_file"
"""TensorFlow's translation of the user's function."""
_DELETED = " (deleted)"


@dataclass(frozen=True)
class Whose:
    """Who owns a file; of a package its name, and its version where that is known."""

    owner: Owner
    package: str | None = None
    version: str | None = None


class Owners:
    """The owners of what one process had loaded. Each module and each Python file is looked at once."""

    def __init__(self, crash: Crash) -> None:
        self._versions = crash.libraries or {}
        self._prefixes = _prefixes(crash)
        self._modules: dict[str, list[Module]] = {}
        for module in crash.modules or ():
            self._modules.setdefault(file_name(module.path.removesuffix(_DELETED)), []).append(module)
        self._roots = _roots(crash)
        self._known: dict[tuple[str | None, str | None, bool], Whose | None] = {}
        self._python: dict[str, Whose | None] = {}

    def of_crash(self, crash: Crash) -> Crash:
        """The crash with the owner of each frame whose file is known."""
        if not crash.threads:
            return crash
        return msgspec.structs.replace(crash, threads=tuple(self._of_thread(thread) for thread in crash.threads))

    def of_culprit(self, culprit: Culprit, thread: Thread | None) -> Culprit:
        """The culprit with its owner; ``thread`` is the one that crashed, with the owners of its frames."""
        place = culprit.python
        is_python = place is not None and (culprit.source, culprit.line) == (place.file, place.line)
        if culprit.module is not None:
            whose = self.of_module(culprit.module, culprit.function, culprit.source)
            blamed = (culprit.function, culprit.module)
            frames = (thread.frames if thread is not None else None) or ()
            frame = next(
                (one for one in frames if one.module and (one.function, file_name(one.module)) == blamed), None
            )
            if frame is not None and frame.owner is not None and (whose is None or whose.owner != frame.owner):
                whose = self.of_frame(frame)  # its address and its source tell more than the module's name
        elif place is not None and (is_python or culprit.function is None):
            whose = self.of_python(place.file)
        else:
            whose = None
        if whose is None:
            return culprit
        return msgspec.structs.replace(culprit, owner=whose.owner, package=whose.package, version=whose.version)

    def _of_thread(self, thread: Thread) -> Thread:
        return msgspec.structs.replace(
            thread,
            python=self._of_python_stack(thread.python),
            frames=self._all(thread.frames),
            largest=self._all(thread.largest) or (),
            folds=tuple(self._of_fold(fold) for fold in thread.folds),
        )

    def _of_python_stack(self, frames: tuple[Frame, ...] | None) -> tuple[Frame, ...] | None:
        """As ``_all``; code that a library generated under the file name of typed code gets no owner."""
        typed = typed_frames(frames or ())
        known = (one if is_typed(one.source) and one not in typed else self._of_frame(one) for one in frames or ())
        return tuple(known) if frames else frames

    def _of_fold(self, fold: Fold) -> Fold:
        return msgspec.structs.replace(fold, python=self._all(fold.python) or ()) if fold.python else fold

    def _all(self, frames: tuple[Frame, ...] | None) -> tuple[Frame, ...] | None:
        return tuple(self._of_frame(frame) for frame in frames) if frames else frames

    def _of_frame(self, frame: Frame) -> Frame:
        if frame.owner is not None:
            return frame
        whose = self.of_frame(frame)
        return msgspec.structs.replace(frame, owner=whose.owner) if whose is not None else frame

    def of_frame(self, frame: Frame) -> Whose | None:
        """Who owns the frame's code; None where that is not known."""
        if frame.kind == "python":
            return self.of_python(frame.source)
        path = self._path(frame)
        key = (
            path or frame.module,
            frame.source if frame.module is None or self._at_hand(frame.source) else None,
            path is None,
        )
        if key not in self._known:
            self._known[key] = self._of_native(frame, path)
        return self._known[key]

    def of_module(self, module: str, function: str | None = None, source: str | None = None) -> Whose | None:
        """Who owns the module of this name or path."""
        return self.of_frame(Frame(index=0, kind="native", function=function, module=module, source=source))

    def of_python(self, source: str | None) -> Whose | None:
        """Who owns a file of Python code."""
        if source is None:
            return None
        if source not in self._python:
            self._python[source] = self._of_source(source)
        return self._python[source]

    def of_path(self, path: str) -> Whose:
        """Who owns the file of native code at ``path``, which has a folder."""
        path = path.removesuffix(_DELETED)
        frame = Frame(index=0, kind="native", module=path)
        if (installed := self._installed(path)) is not None:
            return installed
        if _STANDARD_LIBRARY.search(path) or is_interpreter(frame):
            return Whose("interpreter")
        if _OF_THE_SYSTEM.match(path) or is_system(frame):
            return Whose("system")
        if any(path.startswith(prefix) for prefix in self._prefixes):
            return Whose("package")  # beside the interpreter, as conda installs libraries
        return Whose("native-code")

    def _of_native(self, frame: Frame, path: str | None) -> Whose | None:
        if path is not None:
            whose = self.of_path(path)
            return Whose("native-code") if whose.owner == "package" and self._at_hand(frame.source) else whose
        if is_interpreter(frame):
            return Whose("interpreter")
        known = frame.module is not None or (frame.source is not None and "/" in frame.source)
        if known and is_system(frame):
            return Whose("system")
        name = file_name(frame.module) if frame.module is not None else ""
        package = next(
            (of for start, of in table("packages.json")["libraries"].items() if name.startswith(start)), None
        )
        return Whose("framework", *self._version(package)) if package is not None else None

    def _path(self, frame: Frame) -> str | None:
        if frame.module is None:
            return None
        found = self._modules.get(file_name(frame.module), [])
        if len(found) > 1:
            at = frame.address
            found = [one for one in found if at is not None and one.low <= at < one.high] or found
        # Two of one name, and no address that tells them apart: then it is neither.
        path = found[0].path if len({one.path for one in found}) == 1 else frame.module
        return path if "/" in path or "\\" in path else None

    def _at_hand(self, source: str | None) -> bool:
        """The source file is beside or below the program's own Python code."""
        return source is not None and source.startswith(self._roots) and not _INSTALLED.search(source)

    def _of_source(self, source: str) -> Whose | None:
        if _GENERATED in source or is_typed(source) or source == "<unknown>":
            return Whose("script")
        if (installed := self._installed(source)) is not None:
            return installed
        if source.startswith("<frozen ") or _STANDARD_LIBRARY.search(source):
            return Whose("interpreter")
        if source.startswith("<"):
            return None
        if file_name(source) == source and source.removesuffix(".py") in sys.stdlib_module_names:
            return None
        return Whose("script")

    def _installed(self, path: str) -> Whose | None:
        match = _INSTALLED.search(path)
        if match is None:
            return None
        top = (match["top"] or match["egg"]).removesuffix(".libs").split(".")[0]
        name, version = self._version(top)
        return Whose("framework" if top.lower() in table("packages.json")["frameworks"] else "package", name, version)

    def _version(self, top: str) -> tuple[str, str | None]:
        """The published name and version of the package imported as ``top``."""
        for name in (top, _normal(top), *table("packages.json")["published"].get(top.lower(), ())):
            if name in self._versions:
                return name, self._versions[name]
        return _normal(top), None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower().strip("-") or name


def _prefixes(crash: Crash) -> tuple[str, ...]:
    """Library folders beside each interpreter: ``/opt/conda/lib/`` for ``/opt/conda/bin/python3``."""
    paths = [
        module.path
        for module in crash.modules or ()
        if is_interpreter(Frame(index=0, kind="native", module=module.path))
    ]
    found = (re.match(r"(?P<prefix>/.+)/(?:bin|lib)/[^/]+$", path) for path in paths)
    return tuple({f"{match['prefix']}/lib/" for match in found if match is not None})


def _roots(crash: Crash) -> tuple[str, ...]:
    """The folders of the program's own Python code, if they are not a shared folder."""
    sources: Iterable[str] = (
        frame.source for thread in crash.threads or () for frame in thread.python or () if frame.source is not None
    )
    own = {source.rsplit("/", 1)[0] for source in sources if source.startswith("/") and not _INSTALLED.search(source)}
    return tuple(f"{folder}/" for folder in own if folder.count("/") > 1 and not _STANDARD_LIBRARY.search(folder + "/"))
