"""How repairs reach files: line ends, encoding and permissions stay, a file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from necropsy.audit.cxx_repairs import rounds
from necropsy.audit.cxx_repairs.edits import Edit, Repair, applied, compatible
from necropsy.cli.commands import cli

SOURCE = b"""// gr\xfc\xdfe
#include <vector>

void Fill(double* to) {
\tdouble cells[4000000];
\tfor (int i = 0; i < 4000000; ++i) cells[i] = i;
\tto[0] = cells[1];
}
"""
REPAIRED = SOURCE.replace(b"double cells[4000000];", b"std::vector<double> cells(4000000);")


def run(*words: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["check", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "op.cc"
    path.write_bytes(SOURCE)
    return path


def test_fix(source: Path) -> None:
    source.chmod(0o750)
    code, out, err = run("--fix", source)
    assert (code, source.read_bytes()) == (0, REPAIRED)
    assert err == f"{source}:5: moves `cells` to the heap\n"
    assert "cells" not in out
    assert stat.S_IMODE(source.stat().st_mode) == 0o750
    assert [one.name for one in source.parent.iterdir()] == ["op.cc"]


def test_a_second_fix_changes_nothing(source: Path) -> None:
    run("--fix", source)
    before = source.stat()
    assert run("--fix", source)[0] == 0
    assert (source.stat().st_mtime_ns, source.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_line_ends_are_kept(source: Path) -> None:
    source.write_bytes(SOURCE.replace(b"\n", b"\r\n").replace(b"#include <vector>\r\n", b""))
    run("--fix", source)
    after = source.read_bytes()
    assert b"#include <vector>\r\n" in after
    assert after.count(b"\n") == after.count(b"\r\n")


def test_diff_changes_nothing_and_can_be_applied(source: Path) -> None:
    patch = source.with_name("op.diff")
    assert run("--diff", "-o", patch, source)[0] == 1
    assert source.read_bytes() == SOURCE
    subprocess.run(["patch", "-s", str(source), str(patch)], check=True)
    assert source.read_bytes() == REPAIRED


def test_diff_goes_to_stdout_alone(source: Path) -> None:
    source.write_bytes(SOURCE.replace(b"\xfc\xdf", b"ue"))
    _, out, _ = run("--diff", source)
    assert out.startswith(f"--- {source}\n+++ {source}\n@@ ")
    assert "\n-\tdouble cells[4000000];\n+\tstd::vector<double> cells(4000000);\n" in out
    assert "op-large-frame" not in out


def test_both_together_are_wrong_usage(source: Path) -> None:
    assert run("--fix", "--diff", source)[0] == 2


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_read_only_file_gives_one_line(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything
    code, out, err = run("--fix", source)
    assert (code, source.read_bytes()) == (1, SOURCE)
    assert err == f"necropsy: cannot repair {source}: it is read-only\n"
    assert "op-large-frame" in out


def test_a_file_that_changed_meanwhile_is_left(source: Path) -> None:
    result = rounds.repaired([str(source)], 8 << 20, (), lambda _: True)
    source.write_bytes(b"int x;\n")
    rounds.write(result)
    assert source.read_bytes() == b"int x;\n"
    assert result.failed == [(str(source), "it has changed since it was read")]


def test_no_part_of_a_file_is_left_where_writing_fails(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    _, _, err = run("--fix", source)
    assert err == f"necropsy: cannot repair {source}: No space left on device\n"
    assert source.read_bytes() == SOURCE
    assert [one.name for one in source.parent.iterdir()] == ["op.cc"]


def test_a_header_that_is_included_is_repaired_and_no_other(source: Path) -> None:
    head = SOURCE.replace(b"void", b"inline void")
    header, other = source.with_name("fill.h"), source.with_name("other.h")
    header.write_bytes(head)
    other.write_bytes(head)
    source.write_bytes(b'#include "fill.h"\nvoid F(double* to) { Fill(to); }\n')
    run("--fix", source)
    assert b"std::vector<double> cells" in header.read_bytes()
    assert other.read_bytes() == head


def test_only_the_rules_that_are_asked(source: Path) -> None:
    run("--fix", "--ignore", "op-large-frame", source)
    assert source.read_bytes() == SOURCE


def test_the_command_that_repairs_is_in_the_document(source: Path) -> None:
    _, out, _ = run("--format", "json", source)
    assert f'"command": "necropsy check --fix --select op-large-frame {source}"' in out


def test_overlapping_repairs_are_made_one_at_a_time() -> None:
    def repair(start: int, end: int, text: bytes) -> Repair:
        return Repair((Edit("a", start, end, text),), "")

    kept = compatible([repair(1, 3, b"X"), repair(2, 4, b"Y"), repair(4, 4, b"Z"), repair(4, 4, b"W")])
    assert applied({"a": b"01234"}, kept) == {"a": b"0X3ZW4"}
