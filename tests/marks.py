"""Which tests `make check` leaves out: those that need wine or TensorFlow, and those that take long.

`slow` is what builds programs and lets them die, again and again. A single test is marked where it stands; modules whose
tests are all slow are named here. All of them run in `make test`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import wine

ROOT = Path(__file__).parent
SLOW = (
    # Programs that die under supervision, in every way and at every moment.
    "test_crashers*.py",
    "test_examples.py",
    "test_wild.py",
    "test_cost.py",
    "test_cli.py",
    "test_check.py",
    "test_first_contact.py",
    "test_headlines.py",
    "capture/linux/test_*.py",
    "rules/test_live_*.py",
    "rules/test_advice*.py",
    "rules/test_*_at_death.py",
    "rules/test_quoting.py",
    "rules/test_small_pointers.py",
    "rules/test_whose_fault.py",
    "dataset/test_processes.py",
    # Experiments, each of which is a dozen runs.
    "confirm/test_at_start.py",
    "confirm/test_confirm.py",
    "confirm/test_ends.py",
    "confirm/test_forking.py",
    "confirm/test_import_order.py",
    "confirm/test_memcheck.py",
    "confirm/test_memory_need.py",
    "confirm/test_preloaded_library.py",
    "confirm/test_rebuild.py",
    "confirm/test_refuted.py",
    "confirm/test_sanitizing.py",
    "confirm/test_second_look.py",
    "confirm/test_stacks.py",
    "confirm/test_surroundings.py",
    "confirm/test_unmapping.py",
    "confirm/test_xla.py",
    "prove/test_proof.py",
    "fuzz/test_fuzz_command.py",
    "fuzz/test_sanitized_builds.py",
    "contain/test_contain_lifetimes.py",
    # Texts and dumps made to take long, and all that was ever pasted.
    "secrets/test_linear.py",
    "formats/test_minidump_hostile.py",
    "test_corpus_pasted.py",
    # Environments, packages and sites that are built.
    "doctor/test_broken_*.py",
    "doctor/test_failing_imports.py",
    "doctor/test_op_libraries.py",
    "doctor/test_surviving.py",
    "audit/test_binaries.py",
    "audit/test_corpus_of_ops.py",
    "test_package.py",
    "test_site.py",
)
"""Patterns of paths below tests/."""
QUICK = ("capture/linux/test_run_deaths.py",)
"""Of these, what `make check` runs nevertheless: a few programs that really die."""


@cache
def is_slow(module: Path) -> bool:
    """Its tests, all of them, are left out."""
    path = module.relative_to(ROOT)
    return str(path) not in QUICK and any(path.match(pattern) for pattern in SLOW)


def mark(item: pytest.Item) -> None:
    """Give a test the marks that ``make check`` asks for."""
    if is_slow(item.path):
        item.add_marker("slow")
    if any(found == wine.needed.mark for found in item.iter_markers("skipif")):
        item.add_marker("wine")
