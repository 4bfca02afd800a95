"""What holds for every test: none leaves a report in the user's own folder, and all run as if no batch system did.

Hypothesis tries the same inputs in every run, so that what does not fail before a change lands does not fail after it
either; and no input has a time limit, for the machine may be busy. ``--hypothesis-profile=search`` looks for new ones.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("landing", deadline=None, derandomize=True, database=None)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile("landing")

WORKERS = ("PYTEST_XDIST_WORKER", "RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "GITHUB_ACTIONS")
"""They change the names of reports and what is told to whom; a test that wants one sets it itself."""


@pytest.fixture(scope="session", autouse=True)
def _plain_surroundings() -> Iterator[None]:
    """Runs under test inherit this environment; their reports go into a folder that goes with the session."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="necropsy-reports-") as folder:
        os.environ["NECROPSY_OUTPUT"] = folder
        for name in WORKERS:
            os.environ.pop(name, None)
        yield
    for name in (*WORKERS, "NECROPSY_OUTPUT"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
