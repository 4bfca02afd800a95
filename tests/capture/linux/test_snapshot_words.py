"""The last words that lie in the memory of a dying process."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Crash

SOURCE = """
#include <cassert>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
struct Derived : std::runtime_error { Derived() : std::runtime_error("shape mismatch") {} };
struct Other { virtual ~Other() {} long x = 3; };
struct Two : Other, std::invalid_argument { Two() : std::invalid_argument("second base") {} };
struct Own : std::runtime_error {
  Own() : std::runtime_error("never shown") {}
  const char *what() const noexcept override { return "own words"; }
};
int main(int argc, char **argv) {
  std::string what = argv[1];
  if (what == "runtime") throw std::runtime_error("dimension 7 is not 8");
  if (what == "derived") throw Derived();
  if (what == "two") throw Two();
  if (what == "own") throw Own();
  if (what == "range") return std::string("abc").at(10);
  if (what == "alloc") throw std::bad_alloc();
  if (what == "system") throw std::system_error(std::make_error_code(std::errc::no_such_device), "opening");
  if (what == "string") throw std::string("a string that is too long for its small buffer");
  if (what == "literal") throw "a literal";
  if (what == "int") throw 5;
  if (what == "again") {
    try { throw std::invalid_argument("kept"); }
    catch (...) { auto kept = std::current_exception(); std::rethrow_exception(kept); }
  }
  if (what == "terminate") std::terminate();
  if (what == "abort") { try { throw std::runtime_error("handled"); } catch (...) {} abort(); }
  if (what == "double") { void *p = malloc(40); free(p); free(p); }
  if (what == "assert") assert(argc == 7);
}
"""


@pytest.fixture(scope="module")
def dier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("words"), SOURCE, "-g", "-O0", cxx=True)


def captured(binary: Path, *arguments: str) -> Crash:
    with dying([str(binary), *arguments]) as death:
        return crash_builder.capture(death)


@pytest.mark.parametrize(
    ("how", "kind", "what"),
    [
        ("runtime", "std::runtime_error", "dimension 7 is not 8"),
        ("derived", "Derived", "shape mismatch"),
        ("two", "Two", "second base"),
        ("own", "Own", None),
        ("range", "std::out_of_range", "basic_string::at: __n (which is 10) >= this->size() (which is 3)"),
        ("alloc", "std::bad_alloc", "std::bad_alloc"),
        ("system", "std::system_error", "opening: No such device"),
        ("string", "std::string", "a string that is too long for its small buffer"),
        ("literal", "char const*", "a literal"),
        ("int", "int", None),
        ("again", "std::invalid_argument", "kept"),
    ],
)
def test_the_exception_that_nobody_caught(dier: Path, how: str, kind: str, what: str | None) -> None:
    exception = captured(dier, how).cpp_exception
    assert exception is not None
    assert (exception.type, exception.what) == (kind, what)


@pytest.mark.parametrize("how", ["terminate", "abort", "double"])
def test_no_exception_is_made_up(dier: Path, how: str) -> None:
    assert captured(dier, how).cpp_exception is None


def test_glibc_says_why_it_aborted(dier: Path) -> None:
    assert captured(dier, "double").abort_message == "free(): double free detected in tcache 2"
    said = captured(dier, "assert").abort_message
    assert said is not None
    assert "Assertion `argc == 7' failed" in said


def test_an_abort_of_the_program_has_no_message(dier: Path) -> None:
    assert captured(dier, "abort").abort_message is None


CHECK = """
#include <cstdlib>
#include <cstring>
#include <memory>
struct Data { char buffer[15000]; char line[400]; };
struct LogMessageFatal {
  std::unique_ptr<Data> data{new Data()};
  __attribute__((noinline)) void SendToLog() { abort(); }
  __attribute__((noinline)) void Finish(const char *operands) {
    strcpy(data->line, "F0000 00:00:1750000000.123456 4711 kernel.cc:42] Check failed: rows == cols ");
    strcat(data->line, operands);
    SendToLog();
  }
};
int main(int argc, char **argv) {
  if (argc > 1) { char *copy = strdup("Check failed: stale == text (1 vs. 2)"); if (copy) abort(); }
  LogMessageFatal message; message.Finish("(3 vs. 4)");
}
"""


def test_a_checks_text_is_found_behind_the_stack(tmp_path: Path) -> None:
    binary = build(tmp_path, CHECK, "-g", "-O0", cxx=True)
    (message,) = captured(binary).messages or ()
    assert message.kind == "check-failed"
    assert message.where.startswith("memory of thread ")
    assert (message.fields["expression"], message.fields["operands"]) == ("rows == cols", "3 vs. 4")
    assert (message.fields["file"], message.fields["source_line"]) == ("kernel.cc", "42")


def test_words_of_a_check_alone_do_not_make_one(tmp_path: Path) -> None:
    binary = build(tmp_path, CHECK, "-g", "-O0", cxx=True)
    assert not captured(binary, "stale").messages
