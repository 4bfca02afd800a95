"""``--reruns`` of pytest-rerunfailures: a test that died is run again, too, in the next process."""

from __future__ import annotations

import importlib

import pytest

from necropsy.pytest_plugin import failures
from necropsy.pytest_plugin.progress import TestRecord


def wanted(item: pytest.Item) -> int:
    """How many times the test may be run again; 0 without pytest-rerunfailures."""
    if not item.config.pluginmanager.has_plugin("rerunfailures"):
        return 0
    try:
        return int(importlib.import_module("pytest_rerunfailures").get_reruns_count(item) or 0)
    except Exception:  # noqa: BLE001 - another version of the plugin
        return 0


def report(item: pytest.Item, record: TestRecord, earlier: list[tuple[str, str]]) -> pytest.TestReport:
    """The death as an attempt that is repeated."""
    died = failures.test_reports(item, record.deaths[-1], earlier)[0]
    died.outcome = "rerun"  # type: ignore[assignment] # the outcome that the plugin adds
    died.__dict__["rerun"] = len(record.deaths) - 1
    return died
