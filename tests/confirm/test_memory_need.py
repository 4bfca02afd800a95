"""Real programs that get less memory than they want, and what they would have needed."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from confirming import necropsy, script, verdict
from control_group import inside, limited, needed
from necropsy import serialize
from necropsy.model import Diagnosis, Document, Experiment

MIB = 1 << 20
TAKES = "import sys, time\nblocks = [b'x' * (1 << 20) for _ in range(int(sys.argv[1]))]\n"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def confirmed(cwd: Path, *command: object, options: tuple[str, ...] = ()) -> tuple[Document, str]:
    """The programs end with a traceback of their own: it is looked at in the other tests that there is no other."""
    path = cwd / "c.json"
    done = necropsy("run", "--confirm", "--yes", "--full", "--json", path, *options, "--", *command, cwd=cwd)
    return serialize.loads(path.read_bytes()), done.stderr


def row(found: Diagnosis, name: str) -> Experiment:
    (one,) = [one for one in found.experiments if one.name == name]
    return one


def unlimited(limit: int) -> pytest.MarkDecorator:
    """The hard limit is infinite, so that a soft limit can be lifted."""
    is_low = resource.getrlimit(limit)[1] != resource.RLIM_INFINITY
    return pytest.mark.skipif(is_low, reason="the hard limit cannot be lifted here")


@pytest.fixture
def address_space() -> Iterator[int]:
    """What this process starts may have half a gigabyte of address space: more takes longer to fill, and shows no more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (512 * MIB, before[1]))
    yield 512
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def group() -> Iterator[Path]:
    with limited(96 * MIB, only_version_1=True) as group:
        yield group


@unlimited(resource.RLIMIT_AS)
def test_what_it_needs_against_a_limit_on_its_address_space(address_space: int, tmp_path: Path) -> None:
    document, text = confirmed(tmp_path, sys.executable, script(tmp_path, TAKES), 600)
    found = verdict(document)
    assert (found.rule, found.status) == ("allocation-failed", "confirmed")
    lifted = row(found, "no-memory-limit")
    assert (lifted.crashed, lifted.runs) == (0, 2)
    match = re.search(r"it takes ([\d,]+) MiB of address space, ([\d,]+) MiB of memory at once", lifted.means or "")
    assert match is not None, lifted.means
    mapped, resident = (int(octets.replace(",", "")) for octets in match.groups())
    assert 600 <= resident <= mapped <= 600 * 1.1
    (fix,) = [one for one in found.fixes if one.verified]
    kib = int((fix.command or "").removeprefix("ulimit -v "))
    assert mapped * 1.2 < kib / 1024 < mapped * 1.3
    (seen,) = [one for one in found.evidence if one.where == "a run without the limit"]
    assert f"{address_space:,} MiB of address space are allowed" in seen.seen
    assert "Predicted: it survives. Seen: it survives: it takes" in " ".join(text.split())


@unlimited(resource.RLIMIT_DATA)
def test_a_limit_on_the_data_segment_is_lifted(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (256 * MIB, before[1]))
    try:
        document, _ = confirmed(tmp_path, sys.executable, script(tmp_path, TAKES), 350)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    found = verdict(document)
    assert (found.rule, found.status) == ("allocation-failed", "confirmed")
    assert [fix.command for fix in found.fixes if fix.verified] == ["ulimit -d unlimited"]
    assert "256 MiB of data segment are allowed" in next(
        one.seen for one in found.evidence if one.where == "a run without the limit"
    )


def test_a_hard_limit_is_not_lifted_and_that_is_told(tmp_path: Path) -> None:
    limit = ["/bin/sh", "-c", 'ulimit -v 524288 && exec "$@"', "sh"]
    path = tmp_path / "c.json"
    words = ["-m", "necropsy", "run", "--confirm", "--yes", "--json", str(path), "--", sys.executable]
    done = subprocess.run(
        [*limit, sys.executable, *words, str(script(tmp_path, TAKES)), "600"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=tmp_path,
        env=os.environ | {"NECROPSY_OUTPUT": str(tmp_path / "reports")},
    )
    assert done.returncode == 1
    found = verdict(serialize.loads(path.read_bytes()))
    assert found.status == "inconclusive"
    assert (
        "the hard limit of the address space is 524,288 KiB here (ulimit -H -v)"
        in row(found, "no-memory-limit").outcome
    )


@unlimited(resource.RLIMIT_AS)
def test_a_request_that_no_limit_allows_is_not_the_limits_fault(address_space: int, tmp_path: Path) -> None:
    document, _ = confirmed(tmp_path, sys.executable, "-c", "bytes(1 << 60)")
    found = verdict(document)
    assert found.rule == "allocation-failed"
    lifted = row(found, "no-memory-limit")
    assert lifted.crashed == lifted.runs == 1
    assert lifted.means == "the limit is not the reason"
    assert not any(fix.verified for fix in found.fixes)


@needed(only_version_1=True)
def test_what_it_needs_against_the_limit_of_its_control_group(group: Path, tmp_path: Path) -> None:
    command = (*inside(group), sys.executable, script(tmp_path, TAKES), "{N}")
    document, text = confirmed(tmp_path, *command, options=("--scale", "N=10..400"))
    found = verdict(document)
    assert (found.rule, found.status) == ("out-of-memory-killed", "confirmed")
    measured = row(found, "memory")
    match = re.search(r"400 would take ([\d,]+) MiB", measured.outcome)
    assert match is not None, measured.outcome
    assert 400 <= int(match[1]) <= 440
    killed = re.fullmatch(r"more than the (\d+) MiB that it was killed at", measured.means or "")
    assert killed is not None, measured.means
    # What is mapped from files is not counted against the group.
    assert 90 <= int(killed[1]) <= 115
    (fix,) = [one for one in found.fixes if one.verified]
    most = re.search(r"Use a N of at most ([\d,]+)", fix.text)
    assert most is not None
    assert 50 < int(most[1].replace(",", "")) < 96
    assert any(one.claim == "how much memory it had when it was killed" for one in found.evidence)
    assert "would take" in text


@needed(only_version_1=True)
def test_a_limit_that_is_not_ours_to_lift_is_told(group: Path, tmp_path: Path) -> None:
    document, text = confirmed(tmp_path, *inside(group), sys.executable, script(tmp_path, TAKES), 400)
    found = verdict(document)
    assert (found.rule, found.status) == ("out-of-memory-killed", "inconclusive")
    measured = row(found, "memory")
    assert measured.runs == 0
    assert measured.outcome.startswith("could not be run: only who has set the limit can lift it")
    assert "a defect of necropsy" not in text
    (killed,) = [one for one in found.evidence if one.claim == "how much memory it had when it was killed"]
    resident = int(killed.seen.split()[0])
    assert 80 <= resident <= 115
