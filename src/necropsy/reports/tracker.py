"""A death inside a third-party package, as that project's issue tracker wants it: only what was seen, in short."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from necropsy import reproducer
from necropsy.model import Culprit, Diagnosis, Frame, Module, Report, Thread
from necropsy.reports import wording
from necropsy.reports.stack import draw
from necropsy.reports.terminal import Pen, clean

_SITE = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<top>[^/\\]+)")
_PLACED = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
_ON_CODE = frozenset(
    {
        "abort", "assertion-failed", "bad-jump", "buffer-overflow-fortify", "bus-error", "check-failed",
        "damaged-object", "deliberate-trap", "double-free", "fast-fail", "heap-buffer-overflow", "heap-corruption",
        "illegal-instruction", "integer-divide-by-zero", "invalid-read", "invalid-write", "misaligned-access",
        "null-dereference", "pure-virtual-call", "stack-overflow-large-frame", "stack-overflow-recursion",
        "stack-smash", "uncaught-cpp-exception", "use-after-free", "write-to-readonly",
    }
)  # fmt: skip
"""Rules on the code's behaviour, not on machines, limits or incompatible versions."""
_OTHER_NAMES = {"cv2": "opencv", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image"}
_FRAMES, _PYTHON, _LOG = 16, 12, 12
_WIDTH = 120


def package(report: Report) -> tuple[str, str] | None:
    """The third-party package that the verdict's culprit is in, and its version; None where it is in none."""
    verdict = report.verdict
    culprit = verdict.culprit if verdict is not None else None
    if verdict is None or culprit is None or culprit.module is None or verdict.rule not in _ON_CODE:
        return None
    found = {
        _name(one, report): one.version
        for one in report.crash.modules or ()
        if one.version and _last(one.path) == culprit.module and _SITE.search(one.path)
    }
    if len(found) != 1:  # of two copies, nobody knows which it was
        return None
    return next(iter(found.items()))


def issue(report: Report) -> tuple[str, list[str]] | None:
    """The title and raw Markdown lines of an issue; None if the culprit is not in a third-party package."""
    found = package(report)
    verdict, thread = report.verdict, wording.shown_thread(report.crash)
    if found is None or verdict is None or verdict.culprit is None:
        return None
    name, version = found
    end = report.crash.fault.signal if report.crash.fault is not None else wording.end_in_a_word(report.crash)
    title = f"{end} in {_culprit(verdict.culprit)} ({name} {version})"
    lines = [*_seen(report, verdict), "", *_versions(report, name, version)]
    if thread is not None:
        lines += _block("Native stack, innermost call first:", _native(thread, verdict.culprit))
        lines += _block("Python, innermost call first:", _python(thread))
    log = [one.text for one in report.crash.messages or ()][-_LOG:]
    call = report.crash.call
    again = reproducer.code(call) if call is not None else None
    lines += _block(
        "The smallest call like the one that was made (types and shapes as seen, contents made up, not tried):",
        again or (),
    )
    lines += _block("Last messages:", [clean(line[:400]) for line in log])
    return clean(title), lines


def _name(module: Module, report: Report) -> str:
    """The package's published name, if the report has it with this version."""
    match = _SITE.search(module.path)
    top = match["top"].removesuffix(".libs").split(".")[0] if match is not None else ""
    known = {**(report.crash.libraries or {})}
    if report.crash.environment is not None:
        known |= report.crash.environment.packages or {}
    wanted = _OTHER_NAMES.get(top, top).replace("_", "-").lower()
    same = [name for name, version in known.items() if version == module.version]
    return next((name for name in sorted(same) if name.replace("_", "-").lower().startswith(wanted)), top)


def _last(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _culprit(culprit: Culprit) -> str:
    where = culprit.function.split("(")[0] if culprit.function else f"an unnamed function of {culprit.module}"
    return f"{where} while {culprit.op} ran" if culprit.op else where


def _seen(report: Report, verdict: Diagnosis) -> list[str]:
    lines = [f"The process died: {wording.death(report.crash)}."]
    if verdict.culprit is not None and (verdict.culprit.op or verdict.culprit.kernel):
        named = {"op": verdict.culprit.op, "kernel": verdict.culprit.kernel}
        lines.append("Running: " + ", ".join(f"{key} `{value}`" for key, value in named.items() if value) + ".")
    lines.append(f"necropsy's verdict is `{verdict.rule}` ({verdict.confidence}): {verdict.summary}")
    return [clean(line) for line in lines]


def _versions(report: Report, name: str, version: str) -> list[str]:
    one = report.crash.environment
    rows = [(name, version)]
    if one is not None:
        rows += [
            (key, value) for key, value in (("Python", one.python), ("System", one.platform), ("CPU", one.cpu)) if value
        ]
        rows += [("C library", one.libc)] if one.libc else []
    # Neighbours that native code is often built against: a maintainer asks for them next.
    known = report.crash.libraries or {}
    rows += [(key, known[key]) for key in ("numpy", "libstdc++") if key in known and key != name]
    return [clean(f"- {key}: {value}") for key, value in rows]


def _native(thread: Thread, culprit: Culprit) -> list[str]:
    # The lines of Python follow on their own.
    native = msgspec.structs.replace(thread, python=None, stack=None)
    rows = [line[2:] for line in draw(native, _WIDTH, Pen(color=False), culprit.function)]
    return [*rows[:_FRAMES], *(["..."] if len(rows) > _FRAMES else [])]


def _python(thread: Thread) -> list[str]:
    frames: Sequence[Frame] = thread.python or ()
    lines = [f"{_place(frame)} in {frame.function}" if frame.function else _place(frame) for frame in frames[:_PYTHON]]
    return [clean(line) for line in [*lines, *(["..."] if len(frames) > _PYTHON else [])]]


def _place(frame: Frame) -> str:
    """A package's path from the package on, or the name of the user's file."""
    source = frame.source or "?"
    shown = _PLACED.sub("", source) if _SITE.search(source) else _last(source)
    return shown + (f":{frame.line}" if frame.line is not None else "")


def _block(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, "", *(f"    {line}" for line in lines)] if lines else []
