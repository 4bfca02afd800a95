"""``necropsy doctor --enable-dumps``: what it prints, and what it changes where it may."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

import wine
from necropsy.cli import main
from necropsy.cli.commands import cli
from necropsy.doctor import dumps

KEY = r"HKLM\SOFTWARE\Microsoft\Windows\Windows Error Reporting\LocalDumps\python.exe"


def test_the_commands_are_those_of_microsofts_page() -> None:
    lines = [dumps.line(command) for command in dumps.commands("python.exe", r"C:\my dumps")]
    assert lines == [
        rf'reg add "{KEY}" /v DumpFolder /t REG_EXPAND_SZ /d "C:\my dumps" /f /reg:64',
        rf'reg add "{KEY}" /v DumpCount /t REG_DWORD /d 10 /f /reg:64',
        rf'reg add "{KEY}" /v DumpType /t REG_DWORD /d 2 /f /reg:64',
    ]
    assert dumps.line(dumps.undo("python.exe")) == rf'reg delete "{KEY}" /f /reg:64'


@pytest.mark.skipif(sys.platform == "win32", reason="says that this is not Windows")
@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_elsewhere_it_says_so_in_one_line(more: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--enable-dumps", *more]) == 125
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err == "necropsy: --enable-dumps is for Windows only; here `necropsy run` needs no dumps at all\n"


@pytest.mark.parametrize("program", ["C:\\x\\python.exe", "python", "..\\python.exe", "a\nb.exe", 'a".exe'])
def test_a_program_is_a_name(program: str) -> None:
    done = CliRunner().invoke(cli, ["doctor", "--enable-dumps", "--program", program])
    assert done.exit_code == 2


@wine.needed
def test_on_windows_it_prints_first_and_writes_when_told() -> None:
    python = wine.python()
    words = ("-m", "necropsy", "doctor", "--enable-dumps", "--program", "never.exe", "--folder", "C:\\my dumps")
    key = KEY.replace("python.exe", "never.exe")
    try:
        shown = wine.run(python, *words)
        assert shown.code32 == 0, shown
        for command in dumps.commands("never.exe", "C:\\my dumps"):
            assert dumps.line(command) in shown.stdout
        assert wine.run("reg", "query", key, "/reg:64").code32 == 1
        done = wine.run(python, *words, "--yes")
        assert done.code32 == 0, done
        assert "To undo it" in done.stderr
        values = wine.run("reg", "query", key, "/reg:64").stdout
        rows = [row.split(None, 2) for row in values.splitlines() if row.startswith("    ")]
        assert sorted(rows) == [
            ["DumpCount", "REG_DWORD", "0xa"],
            ["DumpFolder", "REG_EXPAND_SZ", "C:\\my dumps"],
            ["DumpType", "REG_DWORD", "0x2"],
        ]
    finally:
        wine.run("reg", "delete", key, "/f", "/reg:64")
