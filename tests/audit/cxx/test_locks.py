"""Mutexes that are locked in both orders."""

from __future__ import annotations

import pytest
from cxx_kernels import found

GLOBALS = "mutex a;\nmutex b;\n"


@pytest.mark.parametrize(
    "text",
    [
        "void F() { mutex_lock x(a); mutex_lock y(b); }\nvoid G() { mutex_lock y(b); mutex_lock x(a); }",
        "void H() { mutex_lock y(b); }\nvoid F() { mutex_lock x(a); H(); }\nvoid G() { mutex_lock y(b); mutex_lock x(a); }",
        (
            "void F() { std::lock_guard<std::mutex> x(a); std::unique_lock<std::mutex> y{b}; }\n"
            "void G() { absl::MutexLock y(&b); absl::MutexLock x(&a); }"
        ),
        (
            "struct C { mutex m; mutex n; void F() { mutex_lock x(m); G(); } void G() { mutex_lock y(n); }\n"
            "void H() { mutex_lock y(n); { mutex_lock x(this->m); } } };"
        ),
    ],
)
def test_both_orders(text: str) -> None:
    (one,) = found(GLOBALS + text, "op-lock-order")
    assert len(one.others) == 3


@pytest.mark.parametrize(
    "text",
    [
        "void F() { mutex_lock x(a); mutex_lock y(b); }\nvoid G() { mutex_lock x(a); mutex_lock y(b); }",
        "void F() { { mutex_lock x(a); } mutex_lock y(b); }\nvoid G() { mutex_lock y(b); mutex_lock x(a); }",
        (
            "void F() { std::unique_lock<std::mutex> x(a); x.unlock(); mutex_lock y(b); }\n"
            "void G() { mutex_lock y(b); mutex_lock x(a); }"
        ),
        "void F() { std::scoped_lock x(a, b); }\nvoid G() { std::scoped_lock x(b, a); }",
        "struct C { mutex m; void F(C* o) { mutex_lock x(m); mutex_lock y(o->m); } };",
    ],
)
def test_one_order(text: str) -> None:
    assert found(GLOBALS + text, "op-lock-order") == []
