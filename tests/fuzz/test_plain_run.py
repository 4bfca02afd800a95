"""The run of a reproducing test in a process of its own, supervised."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from necropsy.fuzz import plain_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what ends with the campaign is Linux's")


def test_a_diagnosis_that_takes_too_long_ends_no_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = tmp_path / "test_slow.py"
    test.write_text("import time\n\n\ndef test_slow():\n    time.sleep(600)\n")
    monkeypatch.setattr(plain_run, "_PATIENCE_S", -59.5)
    assert plain_run.document_of(sys.executable, test, "test_slow", limit_s=60.0) is None
