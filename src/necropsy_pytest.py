"""The pytest plugin's door: its options. Nothing else of necropsy is loaded unless one of them asks for it."""

from __future__ import annotations

import argparse
import os

import pytest

VARIABLE = "NECROPSY_PYTEST"
"""``1`` is the same as ``--necropsy``; ``0`` overrules ``necropsy = true`` in the ini file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and the ini setting."""
    group = parser.getgroup("necropsy", "native crashes (necropsy)")
    group.addoption(
        "--necropsy",
        action="store_true",
        default=False,
        help="go on after a test that crashes the process; it fails, and its text says why it died",
    )
    group.addoption(
        "--necropsy-alone",
        action="store_true",
        default=False,
        help="as --necropsy; each test that died is run once more, alone, to see whether it was its own fault",
    )
    group.addoption(
        "--necropsy-report",
        metavar="DIR",
        default=None,
        help="as --necropsy; write the report of each death to this folder, as JSON and as Markdown",
    )
    group.addoption(
        "--necropsy-profile",
        metavar="PER CENT",
        nargs="?",
        type=_per_cent,
        const=12.0,
        default=None,
        help="fail a test that leaves less than this share of a thread's stack (12 if none is given; Linux)",
    )
    parser.addini("necropsy", "always run as with --necropsy", type="bool", default=False)


def _per_cent(word: str) -> float:
    try:
        share = float(word.removesuffix("%"))
    except ValueError:
        share = -1.0
    if not 0 < share < 100:
        why = f"give a number of per cent, such as --necropsy-profile=12; {word!r} is none"
        raise argparse.ArgumentTypeError(why)
    return share


def pytest_configure(config: pytest.Config) -> None:
    """Measure the stacks, in the process that runs the tests."""
    share: float | None = config.getoption("--necropsy-profile")
    if share is not None:
        from necropsy.pytest_plugin import stack_left

        stack_left.start(config, share)


def is_wanted(config: pytest.Config) -> bool:
    """Whether a test that dies is to be contained, by the command line, the environment or the ini file."""
    known = config.known_args_namespace
    if known.necropsy or known.necropsy_alone or known.necropsy_report is not None:
        return True
    variable = os.environ.get(VARIABLE)
    return bool(config.getini("necropsy")) if variable is None else variable not in {"", "0"}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of the user's is imported: from here on, the session is a child of this process."""
    if is_wanted(early_config):
        from necropsy.pytest_plugin import start

        start.start(early_config)
