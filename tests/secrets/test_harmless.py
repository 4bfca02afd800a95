"""Three hundred lines of real logs that only sound like secrets stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy import redact

LINES = [
    line
    for line in (Path(__file__).parent / "harmless.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]


def test_there_are_enough_of_them() -> None:
    assert len(set(LINES)) >= 300
    assert len([line for line in LINES if redact._is_suspicious(line)]) > 150, "most must be worth a look"


@pytest.mark.parametrize("line", LINES)
def test_a_harmless_line_stays(line: str) -> None:
    assert redact.text(line) == line


def test_they_stay_as_one_log() -> None:
    whole = "\n".join(LINES)
    assert redact.text(whole) == whole
    assert redact.text(whole.replace("\n", "\r\n")) == whole.replace("\n", "\r\n")


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --max-tokens 512 --tokenizer gpt2 --pad_token <pad> --sort-key name --key created_at",
        "python -m pytest tests/test_auth.py::test_token -k password --pass-with-no-tests -p no:cacheprovider",
        "torchrun --nproc_per_node=2 train.py --ckpt model-00001-of-00002.safetensors --auth none --keys a b",
        "docker run -u 1000:1000 -p 8080:80 image:latest env PWD=/app TOKENIZERS_PARALLELISM=false",
        "ssh -i ~/.ssh/id_ed25519 -p 2222 user@host.example.org git-upload-pack org/repo.git",
    ],
)
def test_a_harmless_command_stays(command: str) -> None:
    assert redact.argv(command.split()) == tuple(command.split())
