"""Views, pointers and references to objects that are gone."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

MAKE = "std::string Make(int n) { return std::to_string(n); }\nconst std::string& Held(int n);\n"


@pytest.mark.parametrize(
    ("body", "case"),
    [
        ("absl::string_view v = Make(1);", "temporary"),
        ("const char* v = absl::StrCat(1, 2).c_str();", "temporary"),
        ("StringPiece v(Make(1));", "temporary"),
        ("std::string a; absl::string_view v = a + Make(2);", "temporary"),
        ("std::vector<int> v(1); int& first = v.front(); v.push_back(2); first = 1;", "grown"),
        ("std::vector<int> v(1); for (int i = 0; i < 3; ++i) { int* p = &v[0]; v.push_back(i); *p = 1; }", "grown"),
        ("const float* p; { std::vector<float> t(3); p = t.data(); } Use(p);", "block"),
        ("const char* p; { std::string t = Make(1); p = t.c_str(); } Use(p);", "block"),
        (
            "std::vector<absl::string_view> v; for (int i = 0; i < 3; ++i) { std::string t = Make(i); v.push_back(t); }",
            "block",
        ),
        ("int64_t n = 0; pool->Schedule([&n]() { n = 2; });", "scheduled"),
        ("int64_t n = 0; pool->Schedule([&]() { n = 2; });", "scheduled"),
    ],
)
def test_views_of_what_is_gone(body: str, case: str) -> None:
    assert [one.case for one in found(kernel(body, before=MAKE), "op-dangling-view")] == [case]


@pytest.mark.parametrize(
    "body",
    [
        "const std::string t = Make(1); absl::string_view v = t;",
        "absl::string_view v = name.flat<tstring>()(0);",
        "Use(absl::StrCat(1, 2).c_str());",
        "std::string t = absl::StrCat(1, 2);",
        "std::vector<int> v(1); v.push_back(2); int& first = v.front(); first = 1;",
        "std::vector<int> v; v.reserve(9); v.push_back(1); int& first = v.front(); v.push_back(2); first = 1;",
        "std::vector<int> v(1); int first = v.front(); v.push_back(2); first = 1;",
        "std::vector<int> v(1); int* p = v.data(); v.push_back(2); p = v.data(); *p = 1;",
        "const float* p; std::vector<float> t(3); { p = t.data(); } Use(p);",
        "const float* p; { std::vector<float> t(3); p = t.data(); Use(p); }",
        "int64_t n = 0; BlockingCounter c(1); pool->Schedule([&]() { n = 2; c.DecrementCount(); }); c.Wait();",
        "int64_t n = 0; pool->Schedule([n]() { Use(n); });",
        "std::vector<std::string> v; for (int i = 0; i < 3; ++i) { std::string t = Make(i); v.push_back(t); }",
    ],
)
def test_views_that_are_fine(body: str) -> None:
    assert found(kernel(body, before=MAKE), "op-dangling-view") == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("const char* F() { std::string s; return s.c_str(); }", 1),
        ("absl::string_view F() { std::string s; return s; }", 1),
        ("int* F() { int a[3]; return a; }", 1),
        ("const std::string& F() { std::string s; return s; }", 1),
        ("const char* F() { static std::string s; return s.c_str(); }", 0),
        ("absl::string_view F(const std::string& s) { return s; }", 0),
        ("std::string F() { std::string s; return s; }", 0),
    ],
)
def test_views_that_are_returned(text: str, count: int) -> None:
    assert [one.case for one in found(text, "op-dangling-view")] == ["returned"] * count


COLLECTOR = """
struct Collector {{
  {kind} words_;
  {kind} Words() const {{ return words_; }}
  void Add(const std::string& text) {{
    {local}
    for (absl::string_view word : absl::StrSplit(lowered, ' ')) {{ words_.insert({given}); }}
    {end}
  }}
}};
"""
_LOCAL = "const std::string lowered = absl::AsciiStrToLower(text);"


@pytest.mark.parametrize(
    ("changed", "cases"),
    [
        ({}, ["kept"]),
        ({"given": "std::string(word)"}, []),
        ({"kind": "std::set<std::string>"}, []),
        ({"local": "const std::string& lowered = text;"}, []),
        ({"end": "words_.clear();"}, []),
    ],
)
def test_views_that_a_member_keeps(changed: dict[str, str], cases: list[str]) -> None:
    parts = {"kind": "std::set<absl::string_view>", "local": _LOCAL, "given": "word", "end": "", **changed}
    text = kernel('Collector c; c.Add("a B");', before=COLLECTOR.format(**parts))
    assert [one.case for one in found(text, "op-dangling-view")] == cases
