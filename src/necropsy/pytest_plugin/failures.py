"""A death as pytest's own reports, which every plugin understands."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative, ReprFileLocation, ReprTraceback
from _pytest.skipping import evaluate_xfail_marks

from necropsy.pytest_plugin.progress import Death, TestRecord

_NO_DEBUGGER = "There is no debugger (--pdb) for it: the process is gone."


def text_of(death: Death) -> list[str]:
    """Everything that is known of it, in lines."""
    told = death.told
    lines = [*told.get("text", ())]
    if not told.get("rule") and death.signal == "SIGKILL":
        lines.append("SIGKILL: the system ran out of memory, or another process sent it.")
    frames = told.get("frames", ())
    if frames:
        lines += ["", "Python, innermost last:"]
        for frame in reversed(frames):
            lines.append(f"{_relative(frame['file'])}:{frame['line']}: in {frame['function']}")
            if frame.get("code"):
                lines.append(f"    {frame['code'].strip()}")
    elif death.left:
        lines += ["", "Python, innermost last:", *death.left.splitlines()]
    elif death.fault_text:
        lines += ["", *death.fault_text.splitlines()]
    if death.unwatched:
        lines += ["", f"Not observed: the process, because it was not watched: {death.unwatched}"]
    if told.get("gap"):
        lines += ["", f"Not observed: {told['gap']}"]
    if death.alone:
        lines += ["", death.alone]
    return lines[1:] if lines and not lines[0] else lines


def _headline(death: Death) -> str:
    return str(death.told.get("headline") or f"the process {death.end}")


def headline(death: Death) -> str:
    """One line: the rule and what happened."""
    rule = death.told.get("rule")
    return f"necropsy: {f'{rule}: ' if rule else ''}{_headline(death)}"


def longrepr(death: Death, where: str, *, place: tuple[str, int | None], debugger: bool = False) -> ExceptionChainRepr:
    """What a report shows. ``place``: where the test is, as ``location``; ``debugger``: the user asked for one."""
    who = f"worker {death.worker!r} (process {death.pid})" if death.worker else f"process {death.pid}"
    lines = [headline(death), f"The {who} {death.end} during {where}.", "", *text_of(death)]
    if debugger:
        lines += ["", _NO_DEBUGGER]
    entry = ReprEntryNative(["\n".join(lines) + "\n"])
    frames = death.told.get("frames") or ()
    file, line = next(((_relative(one["file"]), one["line"]) for one in frames if one["line"]), (place[0], 0))
    crash = ReprFileLocation(file, line or (place[1] or 0) + 1, headline(death))
    return ExceptionChainRepr([(ReprTraceback([entry], None, "native"), crash, None)])


def test_reports(item: pytest.Item, death: Death, earlier: list[tuple[str, str]]) -> list[pytest.TestReport]:
    """The phase that the test died in, failed, and a teardown, because plugins wait for that of every test.

    ``earlier``: the captured output of the phases before.
    """
    fields = {
        "nodeid": item.nodeid,
        "location": item.location,
        "keywords": dict.fromkeys(item.keywords, 1),
        "user_properties": item.user_properties,
    }
    made = _reports(fields, death, earlier, debugger=bool(item.config.getoption("usepdb", default=False)))
    expected = evaluate_xfail_marks(item) if not item.config.option.runxfail else None
    if expected is not None and expected.raises is None:
        made[0].outcome, made[0].wasxfail = "skipped", expected.reason
    return made


def lost_reports(
    nodeid: str,
    death: Death,
    *,
    earlier: Sequence[tuple[str, str]] = (),
    location: tuple[str, int | None, str] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> list[pytest.TestReport]:
    """The same for a test that is not at hand."""
    file, _, name = nodeid.partition("::")
    fields = {"nodeid": nodeid, "location": location or (file, None, name), "keywords": dict(keywords or {})}
    return _reports(fields, death, earlier)


def _reports(
    fields: dict[str, Any], death: Death, earlier: Sequence[tuple[str, str]], *, debugger: bool = False
) -> list[pytest.TestReport]:
    now = time.time()
    file, line, _ = fields["location"]
    shown = longrepr(death, f"the {death.place} of {fields['nodeid']}", place=(file, line), debugger=debugger)
    times: dict[str, Any] = {"start": now - death.seconds, "stop": now}
    parts = [*earlier, *sections(death)]
    died = pytest.TestReport(
        **fields,
        outcome="failed",
        longrepr=shown,
        when=death.place,  # type: ignore[arg-type] # one of the three, where a test died
        sections=parts,
        duration=death.seconds,
        **times,
    )
    if death.place == "teardown":
        return [died]
    times = {"start": now, "stop": now}
    torn_down = pytest.TestReport(**fields, outcome="passed", longrepr=None, when="teardown", sections=parts, **times)
    return [died, torn_down]


def sections(death: Death) -> list[tuple[str, str]]:
    """What it had written, under pytest's headings."""
    when = death.place
    both = (("stdout", death.out), ("stderr", death.err))
    return [(f"Captured {name} {when}", text) for name, text in both if text]


def collect_report(nodeid: str, death: Death, *, as_text: bool = False) -> pytest.CollectReport:
    """A module, folder or conftest.py whose import or collection the process died of.

    ``as_text``: for the controller of pytest-xdist, which knows by the text that several workers report the same.
    """
    what = "the import" if death.place == "conftest" or nodeid.endswith(".py") else "the collection"
    shown = longrepr(death, f"{what} of {nodeid or death.name}", place=(nodeid, None))
    parts = [(f"Captured {name}", text) for name, text in (("stdout", death.out), ("stderr", death.err)) if text]
    given: Any = str(shown) if as_text else shown
    return pytest.CollectReport(nodeid=nodeid, outcome="failed", longrepr=given, result=[], sections=parts)


def leave_out(
    session: pytest.Session, items: list[pytest.Item], dead: Mapping[str, Death], *, as_text: bool = False
) -> None:
    """Report the conftest.py files that a process died of, and leave out the tests that they are for."""
    root = session.config.rootpath
    for path, death in dead.items():
        name = str(Path(path).relative_to(root)) if Path(path).is_relative_to(root) else path
        report = collect_report(name, death, as_text=as_text)
        session.ihook.pytest_collectreport(report=report)
        items[:] = [item for item in items if not Path(item.path).is_relative_to(Path(path).parent)]


def _relative(file: str | None) -> str:
    if not file:
        return "?"
    here = Path.cwd()
    return str(Path(file).relative_to(here)) if Path(file).is_relative_to(here) else file


def reruns_wanted(item: pytest.Item) -> int:
    """How many times the test may be run again (``--reruns``); 0 without pytest-rerunfailures."""
    if not item.config.pluginmanager.has_plugin("rerunfailures"):
        return 0
    try:
        return int(importlib.import_module("pytest_rerunfailures").get_reruns_count(item) or 0)
    except Exception:  # noqa: BLE001 - another version of the plugin
        return 0


def rerun_report(item: pytest.Item, record: TestRecord, earlier: list[tuple[str, str]]) -> pytest.TestReport:
    """The death as an attempt that pytest-rerunfailures repeats, in the next process."""
    died = test_reports(item, record.deaths[-1], earlier)[0]
    died.outcome = "rerun"  # type: ignore[assignment] # the outcome that the plugin adds
    died.__dict__["rerun"] = len(record.deaths) - 1
    return died
