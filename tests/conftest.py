"""What holds for every test: none leaves a report in the user's own folder, and all run as if no batch system did.

Hypothesis tries the same inputs in every run, so that what does not fail before a change lands does not fail after it
either; and no input has a time limit, for the machine may be busy. ``--hypothesis-profile=search`` looks for new ones.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import marks
from dispositions import hand_on_defaults

hand_on_defaults()

NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("landing", NO_CLOCK, derandomize=True, database=None)
settings.register_profile("search", NO_CLOCK, max_examples=2000)
settings.load_profile("landing")

WORKERS = ("PYTEST_XDIST_WORKER", "RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "CI")
"""They change the names of reports and what is told to whom; a test that wants one sets it itself."""
HABITS = (
    *("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CXX", "DEBUGINFOD_URLS", "LD_PRELOAD", "XLA_FLAGS"),
    *("NECROPSY_KEEP", "NECROPSY_DEBUG", "NECROPSY_BUILDS"),
)
"""What a machine's owner may have set, and what programs then do otherwise than the tests say."""
FAMILIES = ("GITHUB_", "TF_", "OMP_", "MALLOC_", "GLIBC_", "ASAN_", "TSAN_", "UBSAN_", "LSAN_", "PYTHON")
"""The same, of whole families."""
KEPT = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To read the modules of slow tests takes a fifth of ``make check``."""
    return marks.are_left_out(collection_path, config.option.markexpr) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``-m`` has to find the marks."""
    for item in items:
        marks.mark(item)


def _is_odd(name: str) -> bool:
    return name in {*WORKERS, *HABITS} or (name.startswith(FAMILIES) and name not in KEPT)


@pytest.fixture(scope="session", autouse=True)
def _plain_surroundings() -> Iterator[None]:
    """Runs under test inherit this environment; their reports go into a folder that goes with the session."""
    before = dict(os.environ)
    odd = [name for name in before if _is_odd(name)]
    with tempfile.TemporaryDirectory(prefix="necropsy-reports-") as folder:
        os.environ["NECROPSY_OUTPUT"] = folder
        for name in odd:
            del os.environ[name]
        yield
    for name in (*odd, "NECROPSY_OUTPUT"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
