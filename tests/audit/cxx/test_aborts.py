"""CHECK and assert on input, and exceptions that leave a kernel."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

TABLE = "std::vector<int> table_; std::map<int, int> map_;"


@pytest.mark.parametrize(
    "body",
    [
        "CHECK_EQ(x.NumElements(), name.NumElements());",
        'CHECK(x.dims() == 2) << "x must be a matrix";',
        "assert(x.dim_size(0) > 3);",
        "const int64_t n = x.dim_size(0); QCHECK_GT(n, 0);",
        "auto values = x.flat<float>(); for (int i = 0; i < 3; ++i) { CHECK_GE(values(i), 0); }",
        "const int64_t n = x.dim_size(0); if (n == 7) return; CHECK_GE(n, 3);",
        "OP_REQUIRES(context, x.dims() > 0, E()); const int64_t row = x.dim_size(0), rows = 2; CHECK_LT(row, 3);",
    ],
)
def test_checks_on_input(body: str) -> None:
    assert [one.rule for one in found(kernel(body), "op-check-on-input")] == ["op-check-on-input"]


def test_checks_in_a_helper_that_gets_input() -> None:
    helper = "int Half(int n) { CHECK_EQ(n % 2, 0); return n / 2; }\n"
    (one,) = found(kernel("int h = Half(x.dim_size(0));", before=helper), "op-check-on-input")
    assert (one.function, one.op, one.facts[0].seen) == ("Half", "Foo", "Half(x.dim_size(0))")
    assert found(kernel("int h = Half(4);", before=helper), "op-check-on-input") == []


@pytest.mark.parametrize(
    "body",
    [
        "OP_REQUIRES(context, x.dims() == 2, E()); CHECK_EQ(x.dims(), 2);",
        "DCHECK_EQ(x.dims(), 2);",
        "CHECK(y != nullptr);",
        "CHECK_EQ(y->dims(), 2);",
        "CHECK(tensor.CopyFrom(x, x.shape()));",
        "int n = 3; CHECK_EQ(n, 3);",
        "const int64_t n = x.dim_size(0); if (n == 7) return; CHECK_NE(n, 7);",
    ],
)
def test_checks_that_the_caller_does_not_decide(body: str) -> None:
    assert found(kernel(body), "op-check-on-input") == []


@pytest.mark.parametrize(
    ("body", "case"),
    [
        ("const std::string text = name.flat<tstring>()(0); int n = std::stoi(text);", "parse"),
        ("int i = x.flat<float>()(0); int v = table_.at(i);", "index"),
        ("int i = x.flat<float>()(0); int v = map_.at(i);", "key"),
        ('int i = x.flat<float>()(0); std::string t("a"); auto u = t.substr(i);', "start"),
        ('if (x.dims() != 2) throw std::runtime_error("rank");', "throw"),
    ],
)
def test_exceptions(body: str, case: str) -> None:
    assert [one.case for one in found(kernel(body, members=TABLE), "op-exception")] == [case]


@pytest.mark.parametrize(
    "body",
    [
        "const std::string t = name.flat<tstring>()(0); try { std::stoi(t); } catch (...) { return; }",
        "int i = x.flat<float>()(0); OP_REQUIRES(context, i >= 0 && i < table_.size(), E()); int v = table_.at(i);",
        "int i = x.flat<float>()(0); if (map_.count(i) == 0) return; int v = map_.at(i);",
        "int v = table_.at(0);",
        'int i = x.dims(); std::string t("a"); if (i > t.size()) return; auto u = t.substr(i);',
        'int v = std::stoi("12");',
        "try { Fail(); } catch (const std::exception&) { return; }",
    ],
)
def test_exceptions_that_do_not_leave_the_kernel(body: str) -> None:
    helper = 'void Fail() { throw std::runtime_error("no"); }\n'
    assert found(kernel(body, members=TABLE, before=helper), "op-exception") == []


def test_a_string_that_is_filled_from_input_holds_input() -> None:
    body = "const auto in = x.flat<tstring>(); std::string word; word.assign(in(0).data(), 3); int n = std::stoi(word);"
    assert [one.rule for one in found(kernel(body), "op-exception")] == ["op-exception"]
    assert found(kernel('std::string word; word.assign("12"); int n = std::stoi(word);'), "op-exception") == []
