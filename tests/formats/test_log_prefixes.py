"""What collectors of logs put before each line goes, and nothing of what the program wrote."""

from __future__ import annotations

from functools import cache
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats.log import digest, scan
from necropsy.formats.log_prefixes import Unwrap, vote
from necropsy.formats.phrases import phrases

# The forms are those of the tools' own documentation; none was taken from anybody's log.
SAFE = {
    "github actions": "2023-11-20T21:17:51.1234567Z ",
    "docker logs -t": "2023-11-20T21:17:51.617250123Z ",
    "kubectl with a zone": "2023-11-20T21:17:51.617250123+01:00 ",
    "containerd": "2023-11-20T21:17:51.617250123Z stderr F ",
    "gitlab": "2023-11-20T21:17:51.617250Z 01E ",
    "syslog": "Nov 20 21:17:51 host-1 python[123]: ",
    "syslog, one digit": "Nov  2 21:17:51 host-1 train.sh[123]: ",
    "syslog, forwarded": "<14>Nov 20 21:17:51 host-1 python[123]: ",
    "journalctl -o short-iso": "2023-11-20T21:17:51+0100 host-1 python3[123]: ",
    "journalctl -o short-precise": "Nov 20 21:17:51.617250 host-1 python[123]: ",
    "heroku": "2023-11-20T21:17:51.617250+00:00 app[web.1]: ",
    "dmesg": "[12345.678901] ",
    "dmesg with the caller": "[12345.678901][ T1234] ",
    "dmesg -T": "[Mon Nov 20 21:17:51 2023] ",
    "journald around dmesg": "Nov 20 21:17:51 host-1 kernel: [12345.678901] ",
    "ray": "(train pid=123, ip=1.2.3.4) ",
    "ray, the same node": "(pid=123) ",
    "ray, an actor": "(Trainer(index=2) pid=482120) ",
    "ray in colour": "\x1b[36m(train pid=123)\x1b[0m ",
    "ray's services": "(raylet, ip=10.0.0.1) ",
    "torch": "[rank0]: ",
    "torchrun --tee": "[default3]:",
    "both": "[default3]:[rank3]: ",
    "mpirun --tag-output": "[1,0]<stderr>:",
    "buildkite": "[2023-11-20T21:17:51Z] ",
    "jenkins": "[2023-11-20T21:17:51.617Z] ",
    "kubectl --prefix": "[pod/train-0/main] ",
    "stamp": "2023-11-20 21:17:51,617 ",
    "stamp with a zone": "2023-11-20 21:17:51 +0000 ",
    "logging": "2023-11-20 21:17:51,617 - train.loop - ERROR - ",
    "basicConfig": "ERROR:root:",
    "gunicorn": "[2023-11-20 21:17:51 +0000] [123] [ERROR] ",
    "celery": "[2023-11-20 21:17:51,617: ERROR/ForkPoolWorker-1] ",
    "airflow": "[2023-11-20, 21:17:51 UTC] {subprocess.py:93} INFO - ",
    "kaggle": "123.4s\t12\t",
    "pytest": "E   ",
    "compose around docker -t around torchrun": "2023-11-20T21:17:51.617250123Z [default3]:[rank3]: ",
}
VOTED = {
    "docker compose 1": "train_1  | ",
    "docker compose 2": "train-1 | ",
    "foreman": "21:17:51 web.1  | ",
    "pm2": "0|train  | ",
    "stern": "train-6d4cf56db6-abcde main ",
    "srun -l": "0: ",
    "srun -l, wide": " 12: ",
    "mpirun -l": "[0] ",
    "markdown": "> ",
    "markdown twice": "> > ",
    "teamcity": "[21:17:51] ",
    "pdsh": "worker-1: ",
}
# Lines that look wrapped and are not.
ITSELF = [
    "2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:356] Check failed: d < dims() (3 vs. 2)",
    "F0000 00:00:1795208908.409686    9695 tensor_shape.cc:204] Check failed: d < dims()",
    "E tensorflow/stream_executor/cuda/cuda_dnn.cc:359] could not create cudnn handle",
    "==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1",
    "ERROR: AddressSanitizer: SEGV on unknown address",
    "[1] 123 segmentation fault (core dumped)  python train.py",
    '  File "train.py", line 3, in f',
    "#0  0x00007f1 in f () from lib.so",
    "python[123]: segfault at 0 ip 0 sp 0 error 4 in a.so[1+1]",
    "KeyError: 'a'",
    "E  x",
    "(gdb) bt",
    "[gw0] node down: Not properly terminated",
    "[New Thread 0x7f1 (LWP 12)]",
    "Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)",
]  # fmt: skip


@pytest.mark.parametrize("before", SAFE.values(), ids=SAFE)
@pytest.mark.parametrize("line", ["Killed", '  File "a.py", line 3, in f', ITSELF[0]])
def test_what_nobody_mistakes_goes_from_a_single_line(before: str, line: str) -> None:
    bare = before.replace("\x1b[36m", "").replace("\x1b[0m", "")
    assert Unwrap()(bare + line)[0] == line


@pytest.mark.parametrize("before", VOTED.values(), ids=VOTED)
def test_what_could_be_the_programs_own_goes_where_all_lines_have_it(before: str) -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "    f()", "", "ValueError: x"] * 5
    other = before.replace("[0]", "[1]")
    wrapped = [(before if number % 2 else other) + line for number, line in enumerate(lines)]
    unwrap = vote(wrapped)
    assert [unwrap(line)[0] for line in wrapped] == lines
    assert vote(lines)(wrapped[0])[0] == wrapped[0]
    assert vote([*lines, wrapped[0]])(wrapped[0])[0] == wrapped[0]


def test_a_numbered_listing_rises() -> None:
    lines = ["a", "b", "", "d", "e", "f"]
    listing = [f"{number:3} | {line}".rstrip() for number, line in enumerate(lines, 9)]
    unwrap = vote(listing)
    assert [unwrap(line)[0] for line in listing] == lines
    table = [f" {number} | {line}" for number, line in zip([3, 1, 2, 9, 2, 1], lines, strict=True)]
    assert [vote(table)(line)[0] for line in table] == table


@pytest.mark.parametrize("line", ITSELF)
def test_what_the_program_wrote_stays(line: str) -> None:
    assert vote([line] * 9)(line)[0] == line


def test_docker_json_file() -> None:
    line = '{"log":"free(): invalid \\"pointer\\"\\n","stream":"stderr","time":"2023-11-20T21:17:51.6Z"}'
    assert Unwrap()(line)[0] == 'free(): invalid "pointer"'
    for broken in (line[:-1], '{"log":1}', '{"log":"', "{}", '{"log":"\\ud800"}'):
        Unwrap()(broken)


def test_writers_are_told_apart() -> None:
    assert Unwrap()("[default3]:[rank3]: x") == ("x", "default3 rank3")
    one = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "ValueError: x"]
    mixed = [line for pair in zip(one, [line.replace("x", "y") for line in one], strict=True) for line in pair]
    text = "\n".join(f"[rank{index % 2}]: {line}" for index, line in enumerate(mixed))
    found = digest(BytesIO(text.encode())).messages
    assert [(message.line, message.fields["text"]) for message in found] == [(1, "x"), (2, "y")]


def test_further_lines_that_journald_indents_stay_with_their_first() -> None:
    before = "Nov 20 21:17:51 host-1 "
    text = f"""\
{before}python[7]: Traceback (most recent call last):
{"":29}  File "a.py", line 3, in f
{before}sshd[9]: session closed
{before}python[7]: ValueError: x
"""
    (message,) = digest(BytesIO(text.encode())).messages
    assert message.fields["exception"] == "ValueError"
    assert message.fields["user_file"] == "a.py"


@cache
def kinds_of_examples() -> dict[str, list[str]]:
    """Every phrase's example, and the messages that are found in it alone."""
    return {phrase.example: [message.kind for message in scan(phrase.example)] for phrase in phrases()}


@pytest.mark.parametrize("before", [*SAFE.values(), *VOTED.values()], ids=[*SAFE, *VOTED])
def test_every_phrase_is_found_behind_every_wrapper(before: str) -> None:
    examples = [phrase.example for phrase in phrases()]
    kinds = [kinds_of_examples()[example] for example in examples]
    other = before.replace("[0]", "[1]")
    wrapped = [(other if number == 1 else before) + example for number, example in enumerate(examples)]
    found = digest(BytesIO("\n".join(wrapped).encode())).messages
    by_line: dict[int, list[str]] = {}
    for message in found:
        by_line.setdefault(message.line or 0, []).append(message.kind)
    wrong = [
        (before + example, kind, by_line.get(number))
        for number, (example, kind) in enumerate(zip(examples, kinds, strict=True), 1)
        if by_line.get(number, []) != kind
    ]
    assert not wrong


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from([*SAFE.values(), *VOTED.values()])), max_size=30))
def test_any_lines(lines: list[str]) -> None:
    unwrap = vote(lines)
    for line in lines:
        rest, _ = unwrap(line)
        assert line.endswith(rest) or line.startswith('{"log":"')
