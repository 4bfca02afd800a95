"""Linux: siginfo's codes, and the last words of glibc and libstdc++ as they stand in the libraries themselves."""

from __future__ import annotations

import platform
import re

from tables.sources import Sources, strings

Names = dict[str, int]
Texts = dict[str, None]
_ARCH = platform.machine() + "-linux-gnu"
_SIGNAL = {"ILL": "SIGILL", "FPE": "SIGFPE", "SEGV": "SIGSEGV", "BUS": "SIGBUS", "TRAP": "SIGTRAP", "SYS": "SIGSYS"}


def si_codes(sources: Sources) -> dict[str, Names] | None:
    """Signal -> name -> number; the codes that every signal may have stand under ``any``."""
    path = sources.file("bits/siginfo-consts.h", f"/usr/include/{_ARCH}/bits/siginfo-consts.h", deb="libc6-dev")
    if path is None:
        return None
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"^#else$.*?^#endif$", "", text, flags=re.MULTILINE | re.DOTALL)  # the order that MIPS has
    found = _of_the_kernel(sources)
    for body in re.findall(r"^enum\s*\{(.*?)\};", text, re.MULTILINE | re.DOTALL):
        value = 0
        for row in re.sub(r"^#.*$", "", body, flags=re.MULTILINE).split(","):
            match = re.fullmatch(r"\s*([A-Z]\w+)(?:\s*=\s*(-?\w+))?\s*", row)
            if match is None:
                continue
            value = int(match[2], 0) if match[2] else value + 1
            prefix = match[1].partition("_")[0]
            if prefix == "SI" or prefix in _SIGNAL:
                found.setdefault(_SIGNAL.get(prefix, "any"), {})[match[1]] = value
    return found


def _of_the_kernel(sources: Sources) -> dict[str, Names]:
    """The kernel's own header knows codes that glibc's does not have yet."""
    path = sources.file("asm-generic/siginfo.h", "/usr/include/asm-generic/siginfo.h", deb="linux-libc-dev")
    found: dict[str, Names] = {}
    if path is not None:
        text = path.read_text(encoding="utf-8")
        for name, prefix, value in re.findall(r"^#\s*define ((SI|[A-Z]+)_[A-Z_]+)\s+(-?\w+)", text, re.MULTILINE):
            if prefix in {"SI", *_SIGNAL} and "_SIZE" not in name and re.fullmatch(r"-?(?:0x)?[0-9a-f]+", value):
                found.setdefault(_SIGNAL.get(prefix, "any"), {})[name] = int(value, 0)
    return found


_GLIBC = re.compile(
    r"(?:free|malloc|realloc|calloc|munmap_chunk|mremap_chunk|malloc_consolidate|tcache_thread_shutdown|int_mallinfo|"
    r"__malloc_info|_int_memalign|unlink_chunk|malloc_check_get_size)\(\): .+|double free or corruption.*|"
    r"corrupted (?:size vs\. prev_size|double-linked list).*|invalid fastbin entry \(free\)|Fatal glibc error: .+|"
    r"\*\*\* .+ \*\*\*(?:: terminated)?|stack smashing detected|buffer overflow detected|"
    r"longjmp causes uninitialized stack frame|bit out of range 0 - FD_SETSIZE on fd_set|memory clobbered .+|"
    r"block freed twice|.*Assertion `%s' failed\.|The futex facility returned an unexpected error code\..*",
    re.DOTALL,
)


def glibc(sources: Sources) -> Texts | None:
    """The texts with which glibc ends a process."""
    path = sources.file("libc.so.6", f"/lib/{_ARCH}/libc.so.6", deb="libc6")
    if path is None:
        return None
    return {text.strip(): None for text in strings(path) if _GLIBC.fullmatch(text.strip()) and "%s ***" not in text}


def glibc_debug(sources: Sources) -> Texts | None:
    """The texts of ``libc_malloc_debug.so``: MALLOC_CHECK_ and mcheck."""
    path = sources.file("libc_malloc_debug.so.0", f"/lib/{_ARCH}/libc_malloc_debug.so.0", deb="libc6")
    return None if path is None else {text.strip(): None for text in strings(path) if _GLIBC.fullmatch(text.strip())}


_LIBSTDCXX = re.compile(
    r"terminate called .*|(?:pure|deleted) virtual method called|  what\(\):.*|.*Assertion '%s' failed.*",
    re.DOTALL,
)


def libstdcxx(sources: Sources) -> Texts | None:
    """The texts with which libstdc++ ends a process."""
    path = sources.file("libstdc++.so.6", f"/usr/lib/{_ARCH}/libstdc++.so.6", deb="libstdc++6")
    if path is None:
        return None
    return {text.strip(): None for text in strings(path) if _LIBSTDCXX.fullmatch(text.strip("\n"))}


def sanitizer_kinds(sources: Sources, name: str, version: str) -> Texts | None:
    """The kinds of report that a sanitizer's library knows: words with hyphens."""
    path = sources.file(
        f"lib{name}.so.{version}", f"/usr/lib/{_ARCH}/lib{name}.so.{version}", deb=f"lib{name}{version}"
    )
    if path is None:
        return None
    kind = re.compile(r"[a-z]{2,}(?:-[a-z]+)+(?: \([a-z ]+\))?")
    return {text: None for text in strings(path) if kind.fullmatch(text) and text not in _NO_KIND}


_NO_KIND = {"llvm-symbolizer", "dje-o", "je-o", "default-aligned", "multi-byte"}
