"""macOS' crash report since version 12, ``Python-2026-11-20-101112.ips``: a line and a body, both JSON.

Fields: Apple, *Interpreting the JSON format of a crash report*. In the body each key begins a line, so that a report
with cut or missing lines can be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from necropsy.formats import backtrace, loose_json
from necropsy.formats.apple import AppleReport, crash_of, frames_with_holes, module
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Fold, Frame, Module, Thread

KIND = "apple-ips"
_REACH = 3000
_THREADS = 64
_IMAGES = 3000

_KEYS = (
    "app_name",
    "app_version",
    "os_version",
    "bug_type",
    "procName",
    "procPath",
    "pid",
    "cpuType",
    "translated",
    "osVersion",
    "exception",
    "termination",
    "faultingThread",
    "threads",
    "usedImages",
    "asi",
    "vmRegionInfo",
    "vmregioninfo",
    "dyldErrorInfo",
)
_TRIGGERS = (
    '"bug_type":"309"',
    '"bug_type":"109"',
    '"faultingThread"',
    '"exception" : {',
    '"exception":{"',
    '"termination" : {',
    '"termination":{"',
    '"vmRegionInfo"',
    '"vmregioninfo"',
)
_TOP = re.compile(r"\s{0,4}\"(\w{2,40})\"\s{0,2}:")
_JSON = re.compile(r"\s{0,8}(?:[{}\[\]\",]|\"|-?\d|true|false|null|--->|$)")
_OF_A_REPORT = {"exception", "termination", "faultingThread", "threads"}
_CRASH = {"309", "109"}
"""Kinds of report (``bug_type``) that are crashes; others are hangs, power and memory statistics."""


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """The report around a line that holds a trigger."""
    extent = _extent(lines, index)
    if extent is None:
        return None
    first, last = extent
    known: dict[str, Any] = {}
    for chunk in _chunks([line.text for line in lines[first : last + 1]]):
        for name, value in loose_json.fields(chunk, *_KEYS).items():
            known.setdefault(name, value)
    if len(_OF_A_REPORT & known.keys()) < 2 and "exception" not in known:
        return None
    if str(known.get("bug_type", "309")) not in _CRASH:
        return None
    report = _report(known, lines[first].number, lines[last].number)
    if report.exception is None and report.namespace is None:
        return None
    return TextReport(KIND, lines[first].number, lines[last].number, crash_of(report), whole=True)


def _extent(lines: Sequence[Line], index: int) -> tuple[int, int] | None:
    """The lines around that look like JSON; None where a line above has been tried and was not a report."""
    first = last = index
    while (
        first > 0 and index - first < _REACH and not _begins(lines[first].text) and _JSON.match(lines[first - 1].text)
    ):
        first -= 1
        if any(trigger in lines[first].text for trigger in _TRIGGERS):
            return None
    while last + 1 < len(lines) and last - index < _REACH and _JSON.match(lines[last + 1].text):
        if _begins(lines[last + 1].text):
            break
        last += 1
    return first, last


def _begins(text: str) -> bool:
    return text.startswith("{") and '"bug_type"' in text[:2000]


def _chunks(texts: Sequence[str]) -> list[str]:
    """The lines of each key of the body, joined: a cut one does not reach into the next."""
    chunks: list[list[str]] = [[]]
    for text in texts:
        if _TOP.match(text):
            chunks.append([])
        chunks[-1].append(text)
    return ["\n".join(chunk) for chunk in chunks if chunk]


# ---------------------------------------------------------------- fields -> report


def _report(known: Mapping[str, Any], first: int, last: int) -> AppleReport:
    exception, termination = _map(known.get("exception")), _map(known.get("termination"))
    system = _map(known.get("osVersion")).get("train") or known.get("os_version")
    report = AppleReport(
        first=first,
        last=last,
        program=_string(known.get("procName")) or _string(known.get("app_name")),
        path=_string(known.get("procPath")),
        pid=_integer(known.get("pid")),
        version=_string(known.get("app_version")),
        cpu=_cpu(known),
        system=_system(_string(system)),
        exception=_string(exception.get("type")),
        signal=_signal(exception, termination),
        detail=" ".join(
            part for part in (_string(exception.get(name)) for name in ("subtype", "message", "codes")) if part
        ),
        namespace=_string(termination.get("namespace")),
        indicator=_string(termination.get("indicator")),
        code=_string(termination.get("code")),
        reasons=tuple(_strings(termination.get("reasons"))),
        by_itself=_by_itself(termination, known),
        information=tuple(
            said for texts in _map(known.get("asi")).values() for said in _strings(texts) if said != "abort() called"
        ),
        region=_string(known.get("vmRegionInfo")) or _string(known.get("vmregioninfo")),
    )
    _add_threads(report, known)
    return report


def _add_threads(report: AppleReport, known: Mapping[str, Any]) -> None:
    images = [_map(image) for image in _list(known.get("usedImages"))]
    report.modules += [found for image in images[:_IMAGES] if (found := _module(image)) is not None]
    threads = [_map(one) for one in _list(known.get("threads"))]
    faulting = _integer(known.get("faultingThread"))
    marked = next((place for place, one in enumerate(threads) if one.get("triggered") is True), None)
    if faulting is not None and faulting < 0:
        faulting = None
    crashed = marked if marked is not None else faulting
    shown = threads if len(threads) <= _THREADS else threads[:_THREADS]
    if crashed is not None and crashed >= _THREADS and crashed < len(threads):
        shown = [*shown[:-1], threads[crashed]]
    for one in shown:
        is_crashed = crashed is not None and crashed < len(threads) and one is threads[crashed]
        report.threads.append(_thread(one, images, crashed=is_crashed))
        if is_crashed:
            report.main_crashed = crashed == 0 or one.get("queue") == "com.apple.main-thread"
            _add_state(report, _map(one.get("threadState")))


def _thread(one: Mapping[str, Any], images: Sequence[Mapping[str, Any]], *, crashed: bool) -> Thread:
    frames = [_frame(place, _map(frame), images) for place, frame in enumerate(_list(one.get("frames")))]
    recursions = [_map(info) for info in _list(one.get("recursionInfoArray"))]
    holes = [
        (hottest, coldest)
        for info in recursions
        if (hottest := _integer(info.get("hottestElided"))) is not None
        and (coldest := _integer(info.get("coldestElided"))) is not None
    ]
    told = backtrace.thread(
        frames_with_holes(frames, sorted(holes)),
        tid=_integer(one.get("id")),
        name=_string(one.get("name")) or _string(one.get("queue")),
        crashed=crashed,
    )
    folds = told.folds or tuple(_fold(info, images) for info in recursions[:1])
    depth = max((_integer(info.get("depth")) or 0 for info in recursions), default=0)
    if folds and depth > folds[0].times:
        # What macOS left out it has counted.
        folds = (msgspec.structs.replace(folds[0], times=depth), *folds[1:])
    total = _integer(one.get("originalLength"))
    return Thread(
        tid=told.tid,
        name=told.name,
        crashed=crashed,
        frames=told.frames,
        frames_total=total if total is not None else told.frames_total,
        complete=told.complete,
        folds=folds,
    )


def _fold(info: Mapping[str, Any], images: Sequence[Mapping[str, Any]]) -> Fold:
    """The recursion as macOS counted it, its key frame and depth, where the frames that are left do not show it."""
    frame = _frame(0, _map(info.get("keyFrame")), images)
    depth = max(_integer(info.get("depth")) or 1, 1)
    first, last = _integer(info.get("hottestElided")), _integer(info.get("coldestElided"))
    elided = last - first + 1 if first is not None and last is not None else depth
    name = frame.function or f"{frame.module}+{frame.module_offset}"
    return Fold(period=max(1, elided // depth), times=depth, functions=(name,), modules=(frame.module,), start=0)


def _frame(place: int, frame: Mapping[str, Any], images: Sequence[Mapping[str, Any]]) -> Frame:
    number, offset = _integer(frame.get("imageIndex")), _integer(frame.get("imageOffset"))
    image = images[number] if number is not None and 0 <= number < len(images) else {}
    base = _integer(image.get("base"))
    path = _string(image.get("path")) or ""
    address = base + offset if base is not None and offset is not None and base + offset < 1 << 64 else None
    return backtrace.native(
        place,
        _string(frame.get("symbol")),
        module=_string(image.get("name")) or path.rsplit("/", 1)[-1] or None,
        source=_string(frame.get("sourceFile")),
        line=_integer(frame.get("sourceLine")),
        address=address,
        offset=offset if image else None,
    )


def _module(image: Mapping[str, Any]) -> Module | None:
    base, size = _integer(image.get("base")), _integer(image.get("size"))
    if base is None or size is None:
        return None
    version = _string(image.get("CFBundleShortVersionString"))
    return module(_string(image.get("path")) or "", base, base + size, _string(image.get("uuid")), version)


def _add_state(report: AppleReport, state: Mapping[str, Any]) -> None:
    values = {
        name.lower(): _integer(_map(value).get("value")) for name, value in state.items() if isinstance(value, dict)
    }
    values |= {f"x{place}": _integer(_map(one).get("value")) for place, one in enumerate(_list(state.get("x"))[:31])}
    names = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "pc", "lr", "sp", "fp"}
    report.registers = {
        name: value
        for name, value in values.items()
        if value is not None and 0 <= value < 1 << 64 and (name in names or re.fullmatch(r"[rx]\d{1,2}", name))
    }
    report.error = values.get("err")
    report.abort = _string(_map(state.get("esr")).get("description"))


def _signal(exception: Mapping[str, Any], termination: Mapping[str, Any]) -> str | None:
    signal = _string(exception.get("signal"))
    if signal is not None:
        match = re.match(r"SIG[A-Z]{2,6}", signal)
        return match[0] if match else None
    return "SIGKILL" if termination.get("namespace") in {"JETSAM", "CODESIGNING", "GUARD"} else None


def _by_itself(termination: Mapping[str, Any], known: Mapping[str, Any]) -> bool | None:
    sender, own = _integer(termination.get("byPid")), _integer(known.get("pid"))
    return sender == own if sender is not None and own is not None else None


def _cpu(known: Mapping[str, Any]) -> str | None:
    cpu = _string(known.get("cpuType"))
    return f"{cpu}, translated by Rosetta 2" if known.get("translated") is True and cpu else cpu


def _system(text: str | None) -> str | None:
    return text.split(" (")[0][:40] if text else None


# ---------------------------------------------------------------- values of any kind


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    return [one for one in (_list(value) or [value]) if isinstance(one, str)]


def _string(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


READER = TextReader(
    kind=KIND,
    triggers=_TRIGGERS,
    read=read,
    reach=_REACH,
)
