"""The preprocessor: conditionals, macros and headers, and no line moves, whatever the text is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.audit.cxx.expressions import evaluate
from necropsy.audit.cxx.preprocess import Expanded, Preprocessor

HEADERS = {"own.h": "#define WIDTH 32\n#ifndef OWN_H\n#define OWN_H\nint own;\n#endif\n"}


def files(text: str) -> list[Expanded]:
    reading = Preprocessor(lambda name, _: (name, HEADERS[name]) if name in HEADERS else None)
    reading.read("op.cc", text)
    return reading.files


def code(text: str) -> list[str]:
    """The lines of the source after the preprocessor, without blanks at both ends."""
    return [" ".join(line.split()) for line in files(text)[-1].text.split("\n")]


def test_the_build_for_the_cpu_is_read() -> None:
    assert code("#if GOOGLE_CUDA\ngpu\n#else\ncpu\n#endif\n") == ["", "", "", "cpu", "", ""]
    assert code("#ifdef _WIN32\na\n#elif defined(__linux__)\nb\n#else\nc\n#endif")[3] == "b"
    assert code("#if defined(GOOGLE_CUDA) || defined(WHO_KNOWS)\na\n#endif")[1] == "a", "an unknown one is kept"
    assert code("#ifdef WHO_KNOWS\na\n#else\nb\n#endif")[1:4] == ["", "", "b"], "one of two branches"
    assert code("#define N 3\n#if N * 2 > 5\na\n#endif")[2] == "a"
    assert code("#define N 3\n#undef N\n#ifdef N\na\n#endif")[3] == ""


def test_macros_of_the_project() -> None:
    assert code("#define A(x, ...) f(#x, x##_, __VA_ARGS__)\nA(b c, 1, 2);")[1] == 'f("b c", b c_, 1, 2);'
    assert code("#define N (2 * M)\n#define M 4\nint a[N];")[2] == "int a[(2 * 4)];"
    assert code("#define SELF SELF + 1\nSELF")[1] == "SELF + 1"
    assert code("#define OP_REQUIRES(a, b, c) if (!(b)) return\nOP_REQUIRES(x, y, z);")[1] == "OP_REQUIRES(x, y, z);"
    assert code("TF_CALL_INDEX_TYPES(REG)")[0] == "REG(int32) REG(int64_t)"
    assert code("\"N\" // N\n/* N */ 'N'") == ['"N"', "'N'"]


def test_arguments_stay_on_their_lines() -> None:
    text = "#define RUN(T, ...) { using X = T; __VA_ARGS__; }\nRUN(float, [&] {\n  first();\n  second(N);\n});\nlast();"
    lines = code(text)
    assert lines[2] == "first();"
    assert lines[3].startswith("second(N);")
    assert lines[5] == "last();"
    (span,) = files(text)[-1].spans
    assert span.macro == "RUN"
    first = files(text)[-1].text.index("first")
    assert next(at for to, at, _ in span.anchors if to == first) == text.index("first")


def test_quoted_headers_come_first_and_give_their_macros() -> None:
    read = files('#include "own.h"\n#include "own.h"\n#include "tensorflow/core/op.h"\nint a[WIDTH];')
    assert [one.path for one in read] == ["own.h", "op.cc"]
    assert read[1].text.split("\n")[3] == "int a[32];"
    reading = Preprocessor(lambda *_: None)
    reading.read("op.cc", '\n#include "gone.h"\n#include "absl/strings/str_cat.h"\n')
    assert reading.missing == [("gone.h", "op.cc", 2)]


def test_a_macro_that_doubles_itself_ends() -> None:
    lines = ["#define A0(x) x x", *(f"#define A{at}(x) A{at - 1}(x) A{at - 1}(x)" for at in range(1, 40)), "A39(y)"]
    assert len(code("\n".join(lines))) == 41
    assert code("\n".join(lines))[-1] == "A39(y)", "it is left as it was"


PIECES = st.sampled_from(
    """#define A(x) x|#define B A|#define C(x, ...) x ## __VA_ARGS__ #x|#if A(1)|#ifdef B|#else|#endif|#elif 1 /|#undef A|#include
A(|)|B|C(1,|2)|\\|\n|\r\n| |"|'|/*|*/|//|R"(|#|##|é|{|}|"own.h"|A(1)|C(a, b)|__VA_ARGS__|<|>|,|0x|1'0""".replace(
        "include\nA(", "include|A("
    ).split("|")
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join) | st.text(alphabet=st.characters(max_codepoint=255), max_size=60))
def test_no_line_moves_and_nothing_crashes(text: str) -> None:
    one = files(text)[-1]
    assert one.text.count("\n") == text.count("\n")
    for span in one.spans:
        assert 0 <= span.source_start <= span.source_end <= len(text)
        assert 0 <= span.start <= span.end <= len(one.text)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(-99, 99),
    st.integers(1, 99),
    st.sampled_from(["+", "-", "*", "/", "%", "<", ">", "==", "<<", "|", "&", "^"]),
)
def test_constant_expressions_count_as_in_c(left: int, right: int, sign: str) -> None:
    right = right % 30 + 1
    if sign == "/":
        expected = int(left / right)
    elif sign == "%":
        expected = left - right * int(left / right)
    else:
        expected = int(eval(f"({left}) {sign} {right}"))
    assert evaluate(f"({left}) {sign} {right}") == expected
    assert evaluate(f"unknown {sign} {right}") is None
    assert evaluate(f"0 && unknown {sign} {right}") == 0


def test_values_of_constant_expressions() -> None:
    known = {"kN": 4, "Shape::kRank": 3}
    for text, value in {
        "1'000'000ULL": 1_000_000,
        "0x10 + 010 + 0b11": 27,
        "kN * Shape::kRank": 12,
        "static_cast<int>(1e6)": 1_000_000,
        "(int64_t)kN << 2": 16,
        "kN > 3 ? sizeof(float) : 2": 4,
        "std::max(kN, 7)": 7,
        "'A' + 1": 66,
        "unknown + 1": None,
        "1 / 0": None,
        "f(": None,
        "(" * 500: None,
    }.items():
        assert evaluate(text, known.get, {"float": 4}.get) == value, text
