"""`necropsy check` as a user types it: exit codes, formats, and what is told in a line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import needs
from necropsy import serialize
from necropsy.cli.commands import cli

SOURCE = Path(__file__).parent / "audit" / "kernels.cc"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ELF files are built on Linux"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the kernels need g++"),
]

HARMLESS = 'extern "C" int twice(int number) { return 2 * number; }\n'


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("op") / "op.so"
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-pthread", "-o", out, SOURCE], check=True)
    return out


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harmless")
    (folder / "twice.cc").write_text(HARMLESS)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", folder / "twice.so", folder / "twice.cc"], check=True)
    return folder / "twice.so"


def check(*words: object) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, words)])


def test_findings_with_their_numbers_and_what_to_do(library: Path) -> None:
    told = check(library)
    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    assert lines[0] == f"{library}: " + lines[0].partition(": ")[2]
    huge = next(line for line in lines if line.endswith("[op-large-frame]"))
    assert huge.startswith("error: `Huge::Compute` in op.so takes ")
    assert "more than the whole stack of 8,388,608 bytes" in huge
    assert "on the heap" in huge
    direct = next(line for line in lines if "`Recurse`" in line)
    assert direct.startswith("warning: Below `Direct::Compute`")
    assert "levels fit into a stack" in direct
    assert not any("Standard::Compute" in line for line in lines)


def test_another_stack_size(library: Path) -> None:
    small = check("--stack-size", "128K", "--select", "op-stack-depth,op-large-frame", library)
    assert "`Middle` in op.so takes 120," in small.stdout
    large = check("--stack-size", "1G", "--select", "op-large-frame", library)
    assert large.exit_code == 0
    assert "In order: size of frames" in large.stdout


def test_a_harmless_library_is_in_order(harmless: Path) -> None:
    told = check(harmless)
    assert told.exit_code == 0
    assert "In order: " in told.stdout
    assert "recursion" in told.stdout.split("In order: ")[1]
    assert "--tensorflow PYTHON" in told.stdout.split("Not checked: ")[1]


def test_the_document(library: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    told = check(library, "--format", "json", "--json", file)
    document = json.loads(told.stdout)
    assert document["kind"] == "audit"
    assert {one["rule"] for one in document["findings"]} >= {"op-recursion", "op-large-frame"}
    one = next(one for one in document["findings"] if one["rule"] == "op-large-frame")
    assert one["culprit"]["function"] == "Huge::Compute"
    assert one["locations"][0]["path"] == str(library)
    assert serialize.loads(file.read_bytes()).kind == "audit"
    for form in ("markdown", "html"):
        assert "Huge::Compute" in check(library, "--format", form).stdout


def test_the_largest_frames(library: Path) -> None:
    told = check("--frames", "--top", "3", library)
    assert told.exit_code == 0
    rows = told.stdout.splitlines()[2:]
    assert len(rows) == 3
    assert rows[0].split()[1] == "Huge::Compute"


def test_a_folder_with_a_damaged_file(library: Path, harmless: Path, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    shutil.copy(harmless, tmp_path / "deep" / "twice.so")
    (tmp_path / "broken.so").write_text("no library")
    told = check(tmp_path)
    assert told.exit_code == 0
    assert "broken.so" in told.stdout.split("Not checked: ")[1]
    assert check("--ignore", "op-recursion,op-large-frame,op-stack-depth", library).exit_code == 0


def test_a_python_file_and_a_folder_with_both(harmless: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import sys\nsys.setrecursionlimit(10**6)\n")
    told = check(file)
    assert told.exit_code == 1
    assert f"{file}: 1 Python file" in told.stdout
    assert f"{file}:2:1: warning: train.py:2 sets the recursion limit to 1,000,000." in told.stdout
    assert "stacks of custom ops" not in told.stdout, "no library was given"
    shutil.copy(harmless, tmp_path / "op.so")
    both = json.loads(check(tmp_path, "--format", "json").stdout)
    assert [one["rule"] for one in both["findings"] if one["severity"] != "note"] == ["op-python-recursion-limit"]
    assert both["findings"][0]["locations"][0]["line"] == 2


def test_sarif(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my train.py").write_text("import sys; é = 1; sys.setrecursionlimit(10**6)\n")
    written = tmp_path / "out.sarif"
    shown = check("my train.py", library, "--format", "sarif", "--sarif", written)
    log = json.loads(shown.stdout[: shown.stdout.rindex("}") + 1])
    assert log == json.loads(written.read_text())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({one["id"] for one in rules}) == len(rules)
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["level"] in {"error", "warning", "note"}
        place = one["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert len(one["partialFingerprints"]["necropsyFinding/v1"]) == 64
    (own,) = (one for one in run["results"] if one["ruleId"] == "op-python-recursion-limit")
    place = own["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20train.py"
    assert place["region"] == {"startLine": 1, "startColumn": 20, "endLine": 1}
    assert "What happened" in rules[own["ruleIndex"]]["help"]["text"]


def test_annotations_for_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a,b.py").write_text("import sys\nsys.setrecursionlimit(10**6)\n")
    (line,) = (one for one in check("a,b.py", "--format", "github").stdout.splitlines() if one)
    assert line.startswith(
        "::warning file=a%2Cb.py,line=2,endLine=2,col=1,title=necropsy%3A op-python-recursion-limit::"
    )
    assert "%0A" in line


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["nowhere.so"], 66, "there is no file nowhere.so"),
        (["{folder}"], 66, "holds no library"),
        (["{text}"], 65, "not a library"),
        (["--select", "op-recursoin", "{text}"], 2, "op-recursion"),
        (["--stack-size", "8 apples", "{text}"], 2, "512K, 8M, 1G"),
        ([], 2, "PATH"),
    ],
)
def test_mistakes(words: list[str], status: int, text: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "op.so").write_text("text")
    given = [word.format(folder=tmp_path / "empty", text=tmp_path / "op.so") for word in words]
    told = subprocess.run(
        [sys.executable, "-m", "necropsy", "check", *given], capture_output=True, text=True, check=False
    )
    assert told.returncode == status
    assert text in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(("other", "status"), [("nowhere.cc", 66), ("empty", 1)])
def test_of_several_paths_those_that_exist_are_checked(other: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    source = tmp_path / "train.py"
    source.write_text("import sys\nsys.setrecursionlimit(10 ** 9)\n")
    told = subprocess.run(
        [sys.executable, "-m", "necropsy", "check", source, tmp_path / other],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "train.py:2" in told.stdout
    assert f"Not checked: {tmp_path / other}" in told.stdout
    assert (told.returncode, "the other paths were checked" in told.stderr) == (status, status == 66)


@needs.command("x86_64-w64-mingw32-g++")
def test_what_is_not_read_of_a_windows_library_is_not_in_order(tmp_path: Path) -> None:
    out = tmp_path / "op.pyd"
    subprocess.run(["x86_64-w64-mingw32-g++", "-O2", "-shared", "-static", "-o", out, SOURCE], check=True)
    told = check(out).stdout
    assert "`Huge::Compute` in op.pyd" in told
    assert "stacks of custom ops" not in told.partition("In order: ")[2].partition("\n")[0]
    assert "of libraries for Windows, these are not read" in told
