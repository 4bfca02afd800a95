from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from necropsy.cli.messages import tell
from necropsy.errors import InputError, NecropsyError, NoInputError
from necropsy.notebook import kernelspecs

COMMAND = ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
SPEC = {
    "argv": COMMAND,
    "display_name": "Python 3",
    "language": "python",
    "env": {"A": "1"},
    "interrupt_mode": "message",
    "metadata": {"debugger": True},
}


@pytest.fixture(autouse=True)
def only_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("JUPYTER_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def kernel(prefix: Path, name: str = "python3", **changed: object) -> Path:
    folder = prefix / "share" / "jupyter" / "kernels" / name
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({**SPEC, **changed}))
    (folder / "logo-64x64.png").write_bytes(b"png")
    return folder


def necropsy(*words: object) -> Result:
    from necropsy.cli.commands import cli

    return CliRunner().invoke(cli, ["jupyter", *map(str, words)])


def test_everything_but_the_command_is_kept(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    kernel(tmp_path / "env")
    result = necropsy("install", "--prefix", tmp_path / "env")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "env" / "share" / "jupyter" / "kernels" / "watched"
    spec = json.loads((folder / "kernel.json").read_text())
    assert (folder / "logo-64x64.png").read_bytes() == b"png"
    assert spec["argv"][0] == sys.executable
    # Jupyter would have started this one for the word `python`.
    assert spec["argv"][4:] == [str(tmp_path / "env" / "bin" / "python"), *COMMAND[1:]]
    assert spec["display_name"] == "Python 3 (watched)"
    assert spec["metadata"] == {"debugger": True, "necropsy": {"kernel": "python3"}}
    assert {name: spec[name] for name in ("language", "env", "interrupt_mode")} == {
        "language": "python",
        "env": {"A": "1"},
        "interrupt_mode": "message",
    }


def test_by_default_it_is_next_to_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = kernel(tmp_path / "env").parent
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    assert necropsy("install", "--name", "w2", "--display-name", "Ours").exit_code == 0
    assert json.loads((beside / "w2" / "kernel.json").read_text())["display_name"] == "Ours"
    assert necropsy("install", "--user").exit_code == 0
    assert (tmp_path / "user" / "kernels" / "watched" / "kernel.json").exists()
    listed = [line.split() for line in necropsy("list").stdout.splitlines()]
    assert [line[:2] for line in listed if str(tmp_path) in line[2]] == [["watched", "python3"], ["w2", "python3"]]
    assert necropsy("uninstall", "--name", "w2").exit_code == 0
    assert not (beside / "w2").exists()
    assert (beside / "python3").exists()


def test_installing_again_replaces_ours_and_no_other(tmp_path: Path) -> None:
    kernel(tmp_path)
    other = kernel(tmp_path, "other")
    assert necropsy("install", "--prefix", tmp_path).exit_code == 0
    assert necropsy("install", "--prefix", tmp_path, "--display-name", "New").exit_code == 0
    spec = json.loads((other.parent / "watched" / "kernel.json").read_text())
    assert spec["display_name"] == "New"
    assert sorted(path.name for path in other.parent.iterdir()) == ["other", "python3", "watched"]
    assert isinstance(necropsy("install", "--prefix", tmp_path, "--name", "other").exception, InputError)
    assert isinstance(necropsy("uninstall", "--prefix", tmp_path, "--name", "other").exception, InputError)
    assert json.loads((other / "kernel.json").read_text()) == SPEC
    twice = necropsy("install", "--prefix", tmp_path, "--kernel", "watched", "--name", "w3")
    assert isinstance(twice.exception, InputError)


def test_an_unknown_kernel_is_one_line_with_those_there_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kernel(tmp_path, "cling")
    error = necropsy("install", "--prefix", tmp_path, "--kernel", "nope").exception
    assert isinstance(error, NoInputError)
    assert tell(error, command="jupyter") == 66
    (line,) = capfd.readouterr().err.splitlines()
    assert "there is no kernel 'nope'" in line
    assert "cling" in line
    error = necropsy("uninstall", "--prefix", tmp_path).exception
    assert isinstance(error, NoInputError)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"argv": []}', '{"argv": "x"}', '{"argv": [1]}', "\xff", "[" * 99999]
)
def test_a_damaged_kernelspec_is_an_input_error(tmp_path: Path, text: str) -> None:
    (kernel(tmp_path) / "kernel.json").write_bytes(text.encode("latin-1"))
    error = necropsy("install", "--prefix", tmp_path).exception
    assert isinstance(error, InputError)
    assert "kernel.json" in str(error)


def test_odd_metadata_does_no_harm(tmp_path: Path) -> None:
    folder = kernel(tmp_path, metadata=None)
    assert kernelspecs.watched(kernelspecs.read(folder))["metadata"] == {"necropsy": {"kernel": "python3"}}


@pytest.mark.parametrize(
    "words",
    [
        ("--prefix", ".", "--user"),
        ("--user", "--sys-prefix"),
        ("--name", "a/b", "--user"),
        ("--name", "ä", "--user"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = kernel(tmp_path)
    result = necropsy("install", "--kernel", folder, *words)
    assert result.exit_code == 2 or isinstance(result.exception, NecropsyError)
    assert not (tmp_path / "user").exists()


def test_a_folder_names_a_kernel_too(tmp_path: Path) -> None:
    folder = kernel(tmp_path / "elsewhere")
    assert necropsy("install", "--kernel", folder / "kernel.json", "--user").exit_code == 0
    assert (tmp_path / "user" / "kernels" / "watched" / "kernel.json").exists()
