from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.process.symbols import LONGEST_ARGUMENTS, compact, demangle_type, readable


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("main", "main"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("_ZSt9terminatev", "std::terminate()"),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
        ("_Z3fooNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "foo(std::string)"),
        ("_Z3barv.cold", "bar()"),
        ("_Znotaname", "_Znotaname"),
        ("__strlen_evex", "strlen"),
        ("__memmove_avx512_unaligned_erms", "memmove"),
        ("__memcpy_chk_avx_unaligned_erms", "memcpy"),
        ("__strcmp_sse42", "strcmp"),
        ("__memchr_evex_rtm", "memchr"),
        ("__wcsnlen_sse4_1", "wcsnlen"),
        ("__mempcpy_sse2_unaligned", "mempcpy"),
        ("__strcpy_chk", "__strcpy_chk"),
        ("__strtol_internal", "__strtol_internal"),
        ("__memory_pool_grow", "__memory_pool_grow"),
    ],
)
def test_names_as_people_read_them(symbol: str, name: str) -> None:
    assert readable(symbol) == name


def test_types_are_demangled_too() -> None:
    assert demangle_type("St13runtime_error") == "std::runtime_error"
    assert demangle_type("15DeepRecursionOp") == "DeepRecursionOp"


def test_long_arguments_are_left_out_and_short_ones_stay() -> None:
    assert compact(f"f<{'x' * (LONGEST_ARGUMENTS + 1)}>::g(int)") == "f<...>::g(int)"
    assert compact("f<int>::g(int)") == "f<int>::g(int)"


@pytest.mark.parametrize("name", ["a::operator<(b const&)", "a::operator<<<int>(b)", "a::operator->() const", "x > y"])
def test_operators_are_no_brackets(name: str) -> None:
    assert compact(name) == name


@given(st.text("<>ab,: operator-()", max_size=300))
def test_any_text_comes_out(name: str) -> None:
    assert len(compact(name)) <= len(name) + len("{}")
