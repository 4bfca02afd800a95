"""Advice depends on whose code died: who cannot change it is told what he can do."""

from __future__ import annotations

import pytest

from necropsy.diagnose import diagnose
from necropsy.model import Crash, Diagnosis
from necropsy.rule import Rule
from necropsy.rules import crash_rules
from necropsy.rules.others_code import _FOR_USERS
from sketch import crash

RULES = crash_rules()
BY_NAME = {rule.name: rule for rule in RULES}
WHERE = {
    "native-code": "/home/u/project/build/{}",
    "package": "/venv/lib/python3.11/site-packages/pandas/{}",
    "framework": "/venv/lib/python3.11/site-packages/tensorflow/{}",
}
LOADED = "library pandas 2.2.3\nlibrary tensorflow 2.20.0\nmodule {}\n"


def verdict(rule: Rule[Crash], owner: str) -> Diagnosis | None:
    """The rule's own verdict on its own hit, with the guilty library where ``owner`` keeps such."""
    subject = crash(rule.hit)
    culprit = diagnose(subject, RULES).verdict
    module = culprit.culprit.module if culprit is not None and culprit.culprit is not None else None
    if module is None:
        return None
    moved = rule.hit.replace(f"@ {module}", f"@ {WHERE[owner].format(module)}") + "\n        "
    found = diagnose(
        crash(moved + LOADED.format(WHERE[owner].format(module)).replace("\n", "\n        ")), RULES
    ).verdict
    return found if found is not None and found.rule == rule.name else None


@pytest.mark.parametrize("name", sorted(_FOR_USERS))
@pytest.mark.parametrize("owner", ["package", "framework"])
def test_a_user_is_not_told_to_change_a_package(name: str, owner: str) -> None:
    found = verdict(BY_NAME[name], owner)
    assert found is not None and found.culprit is not None
    assert found.culprit.owner == owner
    package = {"package": "pandas 2.2.3", "framework": "tensorflow 2.20.0"}[owner]
    assert found.fixes[0].text.startswith(f"This is code of {package}, not yours: ")
    assert any("report it there" in fix.text for fix in found.fixes)
    assert found.fixes[-1].text.startswith(f"For the authors of {package}: ")


@pytest.mark.parametrize("name", sorted(_FOR_USERS))
def test_who_wrote_it_is_told_where_to_change_it(name: str) -> None:
    found = verdict(BY_NAME[name], "native-code")
    assert found is None or not any("not yours" in fix.text for fix in found.fixes)


def test_the_line_that_called_is_named() -> None:
    found = verdict(BY_NAME["null-dereference"], "package")
    assert found is not None
    assert "look at what train.py:40 passes" in found.fixes[0].text


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("/venv/lib/python3.11/site-packages/pandas/lib.so", "let necropsy put buffers"),
        ("/home/u/op.so", "Compare"),
    ],
)
def test_a_damaged_heap_of_packages_alone_is_looked_at_without_a_rebuild(module: str, first: str) -> None:
    hit = BY_NAME["heap-corruption"].hit + f"\n        module /usr/bin/python3.11\n        module {module}\n        "
    found = diagnose(crash(hit + "library pandas 2.2.3\n"), RULES).verdict
    assert found is not None and found.rule == "heap-corruption"
    assert first in found.fixes[0].text
    assert ("pandas 2.2.3" in found.fixes[1].text) == ("pandas" in module)


CALLED = """
    signal SIGSEGV SEGV_MAPERR 0x0 read
    at 0x7f0000001000 movzx eax, byte ptr [rdi]
    operand read [rdi] = 0x0 rdi=0x0
    frame {name} @ /usr/lib/libc.so.6
    frame {caller}
    frame _PyEval_EvalFrameDefault @ /usr/bin/python3.11
    python load /home/u/train.py:12
"""


@pytest.mark.parametrize(
    ("name", "caller", "told"),
    [
        ("strlen", "ffi_call @ /usr/lib/libffi.so.8", "Look at what train.py:12 passes: "),
        ("strlen", "Measure(char const*) @ /home/u/op.so", "Find the pointer that can be null in `Measure`"),
    ],
)
def test_of_a_function_of_the_c_library_the_call_is_to_look_at(name: str, caller: str, told: str) -> None:
    found = diagnose(crash(CALLED.format(name=name, caller=caller)), RULES).verdict
    assert found is not None and found.rule == "null-dereference"
    assert found.fixes[0].text.startswith(told)
    assert ("`strlen` is part of libc.so.6, not your code." in found.fixes[0].text) == ("passes" in told)


PICKLE = """
    signal SIGSEGV SEGV_MAPERR 0x7ffc00000ff8 write
    thread 4711 python3 crashed
    stack 8MiB used 8MiB exhausted main
    frame save_dict @ /usr/lib/python3.11/lib-dynload/_pickle.cpython-311-x86_64-linux-gnu.so in Modules/_pickle.c:3299 takes 80
    frame save_dict @ /usr/lib/python3.11/lib-dynload/_pickle.cpython-311-x86_64-linux-gnu.so in Modules/_pickle.c:3299 takes 80
    frames 104860
    fold 1 x 104850 takes 80: save_dict
    python store train.py:7
"""


def test_nobody_is_told_to_rewrite_python() -> None:
    found = diagnose(crash(PICKLE), RULES).verdict
    assert found is not None
    assert found.rule == "stack-overflow-recursion"
    assert found.fixes[0].text.startswith("Pass data that is nested less deeply")
    assert not any(fix.text.startswith("Make `save_dict`") for fix in found.fixes)


@pytest.mark.parametrize(
    ("line", "rule"), [("return eval(text)", "python-exception"), ("return [0] * n", "allocation-failed")]
)
def test_a_memory_error_of_the_parser_is_no_lack_of_memory(line: str, rule: str) -> None:
    subject = crash(f"""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 3, in parse
        log     {line}
        log MemoryError
    """)
    found = diagnose(subject, RULES).verdict
    assert found is not None
    assert found.rule == rule
    assert any("6,000 levels" in fix.text for fix in found.fixes) is (rule == "python-exception")
