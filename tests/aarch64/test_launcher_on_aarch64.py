"""The program `necropsy` as it was installed on AArch64: what the command inherits, and where it cannot start."""

from __future__ import annotations

import re

import pytest
import supervision
from emulated_machine import Ended
from supervision import PATH

_STATUS = ("cat", "/proc/self/status")


def _run(*words: str, user: str | None = None) -> Ended:
    return supervision.machine().run(*words, user=user, environment=PATH, limit_s=400)


def _shell(before: str, *command: str, user: str | None = None) -> Ended:
    return _run("bash", "-c", f'{before}; exec "$@"', "bash", *command, user=user)


def _signals(ended: Ended) -> list[str]:
    """What is ignored, blocked and pending."""
    assert ended.status == 0, ended.err
    return re.findall(r"^(Sig(?:Ign|Blk|Pnd):\s*\w+)$", ended.out, re.MULTILINE)


@pytest.mark.parametrize("before", ["true", "trap '' PIPE XFSZ", "trap '' PIPE USR1 INT"])
def test_signals_that_were_ignored_stay_ignored(before: str) -> None:
    plain, ours = _shell(before, *_STATUS), _shell(before, "necropsy", "run", *_STATUS)
    assert _signals(ours) == _signals(plain) != []


def test_a_small_stack_is_the_commands_own() -> None:
    command = ("necropsy", "run", "bash", "-c", "ulimit -S -s; exit 3")
    ended = _shell("ulimit -S -s 64", *command)
    assert (ended.status, ended.out, ended.err) == (3, "64\n", "")


def test_where_the_stack_is_too_small_it_says_what_is_enough() -> None:
    command = ("necropsy", "run", "bash", "-c", "exit 4")  # arguments lie on the stack too
    refused = _shell("ulimit -s 64", *command, user="user")
    assert (refused.status, refused.out) == (125, "")
    enough = re.search(r"a hard limit of (\d+) KiB is enough", refused.err)
    assert enough is not None, refused.err
    size = int(enough[1]) + 8  # the kernel leaves some room at random
    ended = _shell(f"ulimit -s {size}", *command, user="user")
    assert (ended.status, ended.out) == (4, "")


def test_the_command_does_not_see_the_record() -> None:
    path = f"PATH={PATH['PATH']}"
    ended = _run("env", "-i", path, "A=1", "necropsy", "run", "/usr/bin/env")
    assert (ended.status, ended.out) == (0, f"{path}\nA=1\n")


def test_it_finds_its_script_through_a_link_and_says_where_it_is_not() -> None:
    folder = PATH["PATH"].partition(":")[0]
    ended = _run("bash", "-c", f"ln -s {folder}/necropsy /tmp/link && exec /tmp/link run bash -c 'exit 5'")
    assert (ended.status, ended.err) == (5, "")
    alone = _run(
        "bash", "-c", f"mkdir /tmp/alone && cp {folder}/necropsy /tmp/alone && exec /tmp/alone/necropsy run true"
    )
    said = "necropsy: cannot start /tmp/alone/necropsy-python: it or its Python is not there; install necropsy again\n"
    assert (alone.status, alone.err) == (125, said)
