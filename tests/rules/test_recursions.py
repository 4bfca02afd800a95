"""The name of a recursion does not depend on where in its period the stack ended."""

from __future__ import annotations

import pytest

from necropsy.model import Fold
from necropsy.rules.culprit import recursive_function


@pytest.mark.parametrize(
    ("functions", "name"),
    [
        (("pong", "ping"), "ping"),
        (("walk", "visit", "walk", "leave"), "leave"),
        (("malloc", "Flatten(Node*)", "operator new(unsigned long)"), "Flatten(Node*)"),
        (("std::unique_ptr<Link>::~unique_ptr()", "Link::~Link()", "visit"), "Link::~Link()"),
    ],
)
def test_it_has_one_name_wherever_the_stack_ended(functions: tuple[str, ...], name: str) -> None:
    for at in range(len(functions)):
        turned = (*functions[at:], *functions[:at])
        assert recursive_function(Fold(period=len(turned), times=9, functions=turned)) == name
