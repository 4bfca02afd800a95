"""Which tests `make check` leaves out: those that need wine or TensorFlow, and those that take long.

`slow` is what builds programs and lets them die, again and again. A single test is marked where it stands; modules whose
tests are all slow are named here. So are those that are `medium`: `make check` leaves them out too, `make check-python`,
which the workflow runs with each version of Python, does not. All of them run in `make test`.
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
MEDIUM = (
    "confirm/test_warm_start.py",
    "contain/test_contain_pool.py",
    "contain/test_spawned.py",
    "doctor/test_machine_limits.py",
    "doctor/test_old_processors.py",
    "formats/test_hostile.py",
    "formats/test_log_sampler.py",
    "fuzz/test_forked_runs.py",
    "fuzz/test_given_strategies.py",
    "fuzz/test_gradients.py",
    "fuzz/test_jobs.py",
    "fuzz/test_lethal_conditions.py",
    "fuzz/test_preconditions.py",
    "fuzz/test_python_functions.py",
    "fuzz/test_spawned_workers.py",
    "notebook/test_watched_kernel.py",
    "profile/test_command.py",
    "profile/test_heap_recordings.py",
    "profile/test_known_depths.py",
    "profile/test_smallest_limits.py",
    "pytest_plugin/test_ends_of_processes.py",
    "pytest_plugin/test_options_of_pytest.py",
    "pytest_plugin/test_outside_tests.py",
    "pytest_plugin/test_under_xdist.py",
    "reduce/test_reduce_command.py",
    "reduce/test_rewritten_sources.py",
    "test_explained_files.py",
    "test_python_api_page.py",
    "test_running.py",
    "test_tables.py",
    "triage/test_log_deaths.py",
    "watch/test_held_report.py",
    "watch/test_watcher_lifetimes.py",
)
"""Each takes more than about 3 s of CPU, and another module looks at the same code in less."""
QUICK = ("capture/linux/test_run_deaths.py",)
"""Of these, what `make check` runs nevertheless: a few programs that really die."""


@cache
def kind_of(module: Path) -> str | None:
    """The mark of all of its tests: ``slow``, ``medium`` or none."""
    path = module.relative_to(ROOT)
    if str(path) in QUICK:
        return None
    kinds = {"medium": MEDIUM, "slow": SLOW}
    return next((kind for kind, patterns in kinds.items() if any(map(path.match, patterns))), None)


def are_left_out(module: Path, expression: str) -> bool:
    """Whether ``-m expression`` leaves out all tests of a module because of its kind: it need not be read."""
    if "or" in expression.split() or not module.is_relative_to(ROOT):
        return False
    kind = kind_of(module)
    return kind is not None and f"not {kind}" in expression.split(" and ")


def mark(item: pytest.Item) -> None:
    """Give a test the marks that ``make check`` asks for."""
    if kind := kind_of(item.path):
        item.add_marker(kind)
    if any(found == wine.needed.mark for found in item.iter_markers("skipif")):
        item.add_marker("wine")
