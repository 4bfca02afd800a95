"""pytest's reports and warnings as bytes, for the journal."""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Mapping
from typing import Any

import pytest

_WHOLE, _BOTH = b"1", b"2"
_PLAIN = ("nodeid", "location", "outcome", "when", "duration")


class Keeping:
    """Reports as bytes. Those of one test share their keywords, which are most of it."""

    def __init__(self) -> None:
        self._keywords: Any = None

    def __call__(self, report: pytest.TestReport) -> bytes:
        """All of a report, with what plugins have added; what cannot be pickled is left out."""
        fields = dict(report.__dict__)
        if report.when != "setup" and self._keywords is not None and report.keywords == self._keywords:
            del fields["keywords"]
        else:
            self._keywords = report.keywords
        try:
            whole = pickle.dumps((type(report), fields), protocol=4)
        except Exception:  # noqa: BLE001 - whatever an attribute does when it is pickled
            whole = pickle.dumps((pytest.TestReport, _without_objects(report)), protocol=4)
        if type(report) is pytest.TestReport and report.longrepr is None and not report.user_properties:
            return _WHOLE + whole
        plain = {name: getattr(report, name, None) for name in _PLAIN}
        return _BOTH + pickle.dumps((plain, whole), protocol=4)


def _without_objects(report: pytest.TestReport) -> dict[str, Any]:
    fields = {}
    for name, value in report.__dict__.items():
        shown = str(value) if name == "longrepr" and value is not None and not isinstance(value, tuple) else value
        with contextlib.suppress(Exception):
            pickle.dumps(shown)
            fields[name] = shown
    return fields


def restored(data: bytes, keywords: Mapping[str, Any]) -> pytest.TestReport:
    """The report; with the plain fields only where a class of a plugin's cannot be found.

    ``keywords``: those of the test's report before.
    """
    plain, whole = ({}, data[1:]) if data[:1] == _WHOLE else pickle.loads(data[1:])  # noqa: S301 - by our predecessor
    try:
        kind, fields = pickle.loads(whole)  # noqa: S301 - as above
        report: pytest.TestReport = kind.__new__(kind)
        report.__dict__.update({"keywords": dict(keywords)} | fields)
    except Exception:  # noqa: BLE001 - whatever a class does when it is unpickled
        return pytest.TestReport(keywords=dict(keywords), longrepr=None, **plain)
    return report


def kept_warning(one: warnings.WarningMessage, nodeid: str, location: Any) -> bytes | None:
    """A warning of a test; None where its class cannot be found again."""
    try:
        fields = (one.message, one.category, one.filename, one.lineno, one.line)
        return pickle.dumps((fields, nodeid, location), protocol=4)
    except Exception:  # noqa: BLE001 - whatever its class does when it is pickled
        return None


def restored_warning(data: bytes) -> dict[str, Any] | None:
    """The arguments of ``pytest_warning_recorded``."""
    try:
        (message, category, filename, lineno, line), nodeid, location = pickle.loads(data)  # noqa: S301 - as above
    except Exception:  # noqa: BLE001 - as above
        return None
    one = warnings.WarningMessage(message, category, filename, lineno, line=line)
    return {"warning_message": one, "when": "runtest", "nodeid": nodeid, "location": location}
