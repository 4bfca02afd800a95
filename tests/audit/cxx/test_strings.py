"""sprintf, strcpy and strcat into arrays."""

from __future__ import annotations

import pytest
from cxx_kernels import found, kernel

TEXT = "const std::string text(name.flat<tstring>()(0)); "


@pytest.mark.parametrize(
    ("body", "case"),
    [
        (TEXT + 'char b[32]; sprintf(b, "<%s>", text.c_str());', "data"),
        (TEXT + "char b[32]; strcpy(b, text.c_str());", "data"),
        (TEXT + 'char b[32]; strcpy(b, "a"); strcat(b, text.data());', "data"),
        ("const auto names = name.flat<tstring>(); char b[32]; strcpy(b, names(0).c_str());", "data"),
        ('char b[4]; sprintf(b, "%s", "abcd");', "fixed"),
        ('char b[8]; strcpy(b, "12345678");', "fixed"),
        ('char b[8]; strcpy(b, "1234"); strcat(b, "5678");', "fixed"),
        ('int64_t n = x.NumElements(); char b[12]; sprintf(b, "n=%lld", n);', "number"),
        ('float v = x.flat<float>()(0); char b[32]; sprintf(b, "%f", v);', "number"),
        ('int64_t n = x.NumElements(); char b[12]; sprintf(b, "n=%" PRId64, n);', "number"),
    ],
)
def test_texts_that_may_not_fit(body: str, case: str) -> None:
    assert [one.case for one in found(kernel(body), "op-string-overflow")] == [case]


@pytest.mark.parametrize(
    "body",
    [
        'int n = x.dims(); char b[16]; sprintf(b, "n=%d", n);',
        'int n = x.dims(); char b[16]; sprintf(b, "n=%" PRId32 ".", n);',
        'float v = x.flat<float>()(0); char b[64]; sprintf(b, "%g:%e", v, v);',
        'char b[8]; for (int i = 0; i < 10; ++i) sprintf(b, "%d", i);',
        'char b[8]; sprintf(b, "%s", x.dims() ? "yes" : "no");',
        'const char* kind = "abc"; char b[8]; sprintf(b, "%s", kind);',
        'char a[4]; char b[8]; sprintf(b, "%s", a);',
        TEXT + 'char b[8]; sprintf(b, "%.3s", text.c_str());',
        TEXT + "OP_REQUIRES(context, text.size() < 32, E()); char b[32]; strcpy(b, text.c_str());",
        TEXT + 'char b[8]; snprintf(b, sizeof(b), "%s", text.c_str());',
        TEXT + "char* b = new char[text.size() + 1]; strcpy(b, text.c_str());",
    ],
)
def test_texts_that_fit(body: str) -> None:
    assert found(kernel(body), "op-string-overflow") == []


FORMATTER = """
struct Formatter {{
  Formatter(const std::string& name, int64_t size) : {name}, size_(size) {{}}
  void Format() const {{ char b[8]; sprintf(b, "%s", name_.c_str()); Use(b); }}
  const std::string name_;
  int64_t size_;
}};
"""


@pytest.mark.parametrize(("name", "count"), [("name_(name)", 1), ('name_("a")', 0)])
@pytest.mark.parametrize("made", ["new Formatter(text, 3)", "std::make_unique<Formatter>(text, 3)"])
def test_a_text_that_a_constructor_keeps(name: str, count: int, made: str) -> None:
    constructor = f'std::string text; OP_REQUIRES_OK(context, context->GetAttr("text", &text)); f_.reset({made});'
    text = kernel(
        "f_->Format();",
        before=FORMATTER.format(name=name),
        members="std::unique_ptr<Formatter> f_;",
        constructor=constructor,
    )
    assert len(found(text, "op-string-overflow")) == count
