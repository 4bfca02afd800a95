"""`--log tap` uses the probe if it is available, and the filter otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from supervised import python, run, run_and_record

from necropsy.capture.linux.stderr import bpf_probe

pytestmark = pytest.mark.skipif(not bpf_probe.is_allowed(), reason="needs CAP_BPF and CAP_PERFMON")

SAY = python("""
import os, subprocess
os.write(2, b"words\\n")
subprocess.run(["sh", "-c", "/bin/echo child >&2; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status"])
""")


def test_no_write_waits_for_us(tmp_path: Path) -> None:
    done, record = run_and_record(SAY, tmp_path, log="tap", may_probe=True)
    assert done.stdout.split() == [b"NoNewPrivs:", b"0", b"Seccomp:", b"0"]
    assert done.stderr == b"words\nchild\n"
    assert (record.log_tail, record.gaps) == ("words\n", ())  # sh's echo writes to another descriptor


def test_a_probe_that_is_refused(tmp_path: Path) -> None:
    done, record = run_and_record(SAY, tmp_path, log="tap", may_probe=True, fault="probe_refused")
    assert done.stdout.split() == [b"NoNewPrivs:", b"0", b"Seccomp:", b"2"]
    assert done.stderr == b"words\nchild\n"
    assert (record.log_tail, record.gaps) == ("words\n", ())


def test_a_tracer_that_dies_while_it_loads_the_probe() -> None:
    done = run(SAY, log="tap", may_probe=True, fault="probe_kills")
    assert done.returncode == 0
    assert done.stdout.split() == [b"NoNewPrivs:", b"0", b"Seccomp:", b"2"]
    assert done.stderr.startswith(b"words\nchild\n") and done.stderr.count(b"\n") == 3
    assert b"the tracer ended with 1" in done.stderr
