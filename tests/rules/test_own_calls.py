"""A program that ends itself, in a Python whose own functions have no names."""

from __future__ import annotations

import msgspec
import pytest

from necropsy.diagnose import diagnose
from necropsy.model import Crash
from necropsy.rules import crash_rules
from sketch import crash

STRIPPED = """
    signal SIGABRT SI_TKILL
    sent-by itself
    thread 4711 python3 crashed
    frame raise @ libc.so.6 takes 16
    frame abort @ libc.so.6 takes 160
    frame ? @ {module} takes 16
    python check train.py:12
"""


def with_line(code: str, columns: tuple[int, int] | None, module: str = "python3.11") -> Crash:
    found = crash(STRIPPED.format(module=module))
    (thread,) = found.threads or ()
    (line,) = thread.python or ()
    line = msgspec.structs.replace(line, code=code, columns=columns)
    return msgspec.structs.replace(found, threads=(msgspec.structs.replace(thread, python=(line,)),))


@pytest.mark.parametrize(
    ("code", "columns", "module", "rule"),
    [
        ("if broken: os.abort()", None, "python3.11", "ended-by-its-own-call"),
        ("if broken: os.abort()", (11, 21), "python3.11", "ended-by-its-own-call"),
        ("lib.flush() or os.abort()", (0, 11), "python3.11", "abort"),
        ("lib.flush(broken)", None, "python3.11", "abort"),
        ("os.abort()", None, "op.so", "abort"),
    ],
)
def test_the_line_of_python_says_what_was_called(
    code: str, columns: tuple[int, int] | None, module: str, rule: str
) -> None:
    found = diagnose(with_line(code, columns, module), crash_rules()).verdict
    assert found is not None
    assert found.rule == rule
    if rule == "ended-by-its-own-call":
        assert found.confidence == "likely"
