"""Library, interpreter, thread-start and crash-reporting frames, named in sections of ``data/noise_frames.txt``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from importlib.resources import files

from necropsy.lazy_re import regex
from necropsy.model import Frame
from necropsy.predicates import bare_name

_INTERPRETER_MODULE = regex(
    r"(?:libpython3[\w.]*\.(?:so|dylib)|python3?(?:\.\d+)?$|^Python$|^pythonw?\.exe$|^python\d*(?:_d)?(?:\.dll)?$|"
    r"_ctypes(?:\.|$)|_cffi_backend(?:\.|$)|libffi)"
)
_SYSTEM_MODULE = regex(
    r"(?:lib(?:c|m|dl|rt|pthread|gcc_s|stdc\+\+|ffi|tcmalloc\w*|jemalloc|mimalloc|[at]san|ubsan|c_malloc_debug)[.\-]|_guard-(?:x86_64|aarch64)\.|ld[-.]|\[vdso\])"
)
_WINDOWS_MODULE = regex(
    r"(?:ntdll|kernel32|kernelbase|ucrtbased?|msvcrt|msvcr\d+d?|msvcp[\w.]+|vcruntime\d+\w*|concrt\d+|user32|win32u|"
    r"gdi32(?:full)?|combase|rpcrt4|sechost|verifier|wow64\w*|clr|coreclr|mscorwks|libgcc_s\w*-\d|libstdc\+\+-\d|"
    r"libwinpthread-\d|libssp-\d|api-ms-win-\S+?|ext-ms-win-\S+?|ucrtbase_\w+|apphelp|dbghelp|win32kfull|faultrep|wer)(?:\.dll)?$",
    re.IGNORECASE,
)
"""Windows' own libraries; a debugger names them without ``.dll``."""
_MACOS_MODULE = regex(
    r"(?:libsystem_|libc\+\+|libobjc|libdyld|libdispatch|dyld$|libSystem|"
    r"(?:com\.apple\.)?(?:CoreFoundation|Foundation|HIToolbox|AppKit|QuartzCore)$)"
)
_INTERPRETER_SOURCE = regex(r"(?:^|/)(?:Python|Objects|Modules|Parser|Include)/(?:\w+/){0,2}\w+\.[ch]$")
"""Files of CPython: where a debugger knows the source, it does not name the library."""
_SYSTEM_SOURCE = regex(
    r"(?:^\.{1,2}/|/glibc[^/]*/|^csu/)(?:\.\./)?(?:sysdeps|nptl|csu|malloc|stdlib|assert|debug|elf|libio|string|signal|posix|io|misc|setjmp)/"
    r"|/libstdc\+\+-v3/|/libsanitizer/|/compiler-rt/lib/|/libgcc/"
)
_CPP_SOURCE = regex(
    r"(?:^|/)library/(?:core|alloc|std)/src/|(?:^|[/\\])\w+intrin\.h$|/include/(?:[\w-]+/)?c\+\+/|/c\+\+/v1/|[/-]mingw(?:-w64|32|64)/include/|(?:^|/)bits/\w+\.(?:h|tcc)$|^(?:basic_string|char_traits|stl_\w+|new_allocator|alloc_traits|"
    r"allocator|unique_ptr|shared_ptr(?:_base)?|std_function|std_thread|invoke|hashtable(?:_policy)?|ptr_traits)\.(?:h|tcc)$|"
    r"^(?:thread|future|functional|memory|mutex|vector|string|map|list|deque|algorithm|atomic|optional|variant|tuple)$"
)
"""The C++ library, Rust's, and intrinsics: what is compiled from them is in the library that uses it."""
_CPP_HEADER = regex(
    r"/include/(?:[\w-]+/)?c\+\+/|(?:^|/)(?:\w+|(?:stl|std)_\w+\.h|(?:invoke|unique_ptr|shared_ptr\w*|basic_string)\.h)$"
)
"""A header of the C++ library: no other source has a name without an ending."""
_INSTALLED_HEADER = regex(r"[/\\](?:site|dist)-packages[/\\](?:[\w.-]+[/\\])+include[/\\]|^/usr/(?:local/)?include/")
"""Of a package or of the system: TensorFlow's, with Eigen and abseil among them. An op has such code compiled in, but
what its author can correct is the line that called it."""
_EVALUATES = regex(r"_?PyEval_EvalFrame(?:Default|Ex)?$")
_OF_THE_SYSTEM = {"abort", "allocator", "string", "interpreter"}
_RESERVED = frozenset(
    {*("abort", "raise", "malloc", "free", "calloc", "realloc", "__libc_free"), "memcpy", "memmove", "memset"}
)
"""No program may have functions of its own under these names (C17, 7.1.3): in an executable, without a source, they are
those of the C library that a static program holds itself."""
_LIBRARY = regex(r"\.(?:so|dll|pyd|dylib)\b", re.IGNORECASE)


_WILD = frozenset("*?[")


@dataclass(frozen=True)
class _Names:
    """The names of a section. Compiling one pattern of all of them would take a tenth of the report's time."""

    whole: frozenset[str]
    beginnings: tuple[str, ...]
    others: re.Pattern[str] | None

    @classmethod
    def of(cls, rows: Sequence[str]) -> _Names:
        beginnings = [row[:-1] for row in rows if row.endswith("*") and not _WILD & set(row[:-1])]
        others = [row for row in rows if _WILD & set(row) and row[:-1] not in beginnings]
        return cls(
            frozenset(row for row in rows if not _WILD & set(row)),
            tuple(beginnings),
            re.compile("|".join(map(translate, others))) if others else None,
        )

    def __contains__(self, name: str) -> bool:
        if name in self.whole or name.startswith(self.beginnings):
            return True
        return self.others is not None and self.others.match(name) is not None


@lru_cache(maxsize=4)
def _sections(file: str) -> dict[str, _Names]:
    rows: dict[str, list[str]] = {}
    section = ""
    for row in files("necropsy.data").joinpath(file).read_text(encoding="utf-8").splitlines():
        row = row.split("#", 1)[0].strip()  # noqa: PLW2901 - the row without its comment
        if row.startswith("["):
            section = row.strip("[]")
        elif row:
            rows.setdefault(section, []).append(row)
    return {section: _Names.of(found) for section, found in rows.items()}


@lru_cache(maxsize=4096)
def _noise_of(name: str) -> str | None:
    return section_of(name, "noise_frames.txt")


def section_of(name: str, file: str) -> str | None:
    """The first section of the table ``file`` in ``data`` that has the bare name of a function."""
    return next((section for section, names in _sections(file).items() if name in names), None)


def _is_static(frame: Frame) -> bool:
    """Code of an executable of which debug information knows no source."""
    return frame.source is None and frame.module is not None and not _LIBRARY.search(file_name(frame.module))


def noise(frame: Frame) -> str | None:
    """What kind of noise the frame is (a section of ``noise_frames.txt``), or None where it may be the culprit."""
    if frame.function is None:
        return None
    name = bare_name(frame.function)
    section = _noise_of(name)
    if section in _OF_THE_SYSTEM and not is_system(frame) and not (name in _RESERVED and _is_static(frame)):
        section = None
    if section is None and frame.source is not None and _CPP_HEADER.search(frame.source):
        section = "cpp-library"
    if section is not None:
        return section
    if frame.source is not None and (_CPP_SOURCE.search(frame.source) or _INSTALLED_HEADER.search(frame.source)):
        return "cpp-library"
    if is_interpreter(frame):
        return "interpreter's own"
    known = frame.module is not None or (frame.source is not None and _SYSTEM_SOURCE.search(frame.source) is not None)
    return "system" if known and is_system(frame) else None


def noise_of_module(frame: Frame) -> bool:
    """The frame's library is known, and is the system's or Python's."""
    return frame.module is not None and is_system(frame)


def is_system(frame: Frame) -> bool:
    """The frame's library is the system's or Python's, or nobody knows which it is."""
    if is_interpreter(frame):
        return True
    if frame.module is None:
        return frame.source is None or "/" not in frame.source or bool(_SYSTEM_SOURCE.search(frame.source))
    name = file_name(frame.module)
    return any(pattern.match(name) for pattern in (_SYSTEM_MODULE, _WINDOWS_MODULE, _MACOS_MODULE))


def file_name(path: str) -> str:
    """The last part of a path of Linux or of Windows."""
    return re.split(r"[/\\]", path)[-1]


def is_interpreter(frame: Frame) -> bool:
    """The frame's code belongs to CPython itself."""
    if frame.module is None:
        return frame.source is not None and _INTERPRETER_SOURCE.search(frame.source) is not None
    return bool(_INTERPRETER_MODULE.search(file_name(frame.module)))


def is_loop(frame: Frame) -> bool:
    """The frame is the loop in which CPython evaluates Python code."""
    return bool(frame.function and is_interpreter(frame) and _EVALUATES.match(bare_name(frame.function)))


def outside_of_python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames up to the innermost loop of the interpreter: what called Python did not do what Python did."""
    for position, frame in enumerate(frames):
        if is_loop(frame):
            return frames[: position + 1]
    return frames
