"""What holds for every test: none of them leaves a report in the user's own folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _reports_folder() -> Iterator[None]:
    """Runs under test keep their reports in a folder that goes with the session; it is inherited by them."""
    with tempfile.TemporaryDirectory(prefix="necropsy-reports-") as folder:
        before = os.environ.get("NECROPSY_OUTPUT")
        os.environ["NECROPSY_OUTPUT"] = folder
        yield
        if before is None:
            del os.environ["NECROPSY_OUTPUT"]
        else:
            os.environ["NECROPSY_OUTPUT"] = before
