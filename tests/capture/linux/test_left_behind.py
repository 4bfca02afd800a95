"""What code and memory have of a program's last words, where its stderr was not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Crash

SOURCE = """
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline))
APART static void formatted(const char *name, int code) {
  fprintf(stderr, "catalog: cannot open %s (code %d)\\n", name, code);
  abort();
}
APART static void plain(void) {
  fputs("engine: the plan is empty, giving up\\n", stderr);
  abort();
}
APART static void two_branches(int which) {
  if (which > 5) { fputs("engine: the other branch was taken\\n", stderr); abort(); }
  fputs("engine: this branch was taken\\n", stderr);
  abort();
}
APART __attribute__((noreturn)) static void die(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  abort();
}
APART static void by_a_helper(int step) { die("solver: step %d diverged at %.2f\\n", step, 1.5); }
APART static void trapped(void) { fputs("engine: trap ahead of us\\n", stderr); __builtin_trap(); }
APART static void silent(void) { abort(); }
APART static int busy(const char *name) { puts("engine: starts with the work"); return strlen(name) > 3; }
int main(int count, char **words) {
  const char *how = words[1];
  if (!strcmp(how, "formatted")) formatted("/data/x.db", count);
  if (!strcmp(how, "plain")) plain();
  if (!strcmp(how, "branches")) two_branches(count);
  if (!strcmp(how, "helper")) by_a_helper(count);
  if (!strcmp(how, "trap")) trapped();
  if (!strcmp(how, "stdout")) { printf("rows: %d\\nlost rows: %d", 3, 4); silent(); }
  if (!strcmp(how, "silent")) { fprintf(stderr, "once upon a time %d\\n", count); if (busy(how)) silent(); }
  return 0;
}
"""

_IN_MEMORY = "found in memory, not read from stderr"


@pytest.fixture(scope="module", params=["whole", "stripped"])
def dier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = ("-s",) if request.param == "stripped" else ()
    return build(tmp_path_factory.mktemp("left"), SOURCE, "-O2", *more)


def captured(binary: Path, how: str) -> Crash:
    with dying([str(binary), how]) as death:
        return crash_builder.capture(death)


@pytest.mark.parametrize(
    ("how", "text", "is_whole"),
    [
        ("formatted", "catalog: cannot open /data/x.db (code 2)", True),
        ("helper", "solver: step 2 diverged at 1.50", True),
        ("plain", "engine: the plan is empty, giving up", False),
        ("branches", "engine: this branch was taken", False),
        ("trap", "engine: trap ahead of us", False),
    ],
)
def test_words_that_the_code_passed_on_before_it_gave_up(dier: Path, how: str, text: str, *, is_whole: bool) -> None:
    crash = captured(dier, how)
    assert crash.log_tail is None
    words = crash.last_words
    assert words is not None
    assert words.text == text
    assert (words.where == _IN_MEMORY) == is_whole
    assert words.where.endswith("not read from stderr")


def test_what_stdout_had_not_written_yet(dier: Path) -> None:
    words = captured(dier, "stdout").last_words
    assert words is not None
    assert words.text == "rows: 3\nlost rows: 4"
    assert words.where == "in the buffer of stdout when it died, never written"


def test_words_of_other_functions_are_not_taken_for_the_last_ones(dier: Path) -> None:
    words = captured(dier, "silent").last_words
    # What is left is only what stdout never wrote: that was said last, and where it was found is said with it.
    assert words is None or words.where.startswith("in the buffer of stdout")


STREAMS = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <vector>
#define APART __attribute__((noinline))
struct Fatal {
  std::ostringstream out;
  ~Fatal() noexcept { std::string line = out.str(); fprintf(stderr, "%s\\n", line.c_str()); abort(); }
};
APART static void stream(int rank) { Fatal().out << "planner: rank " << rank << " is not supported here"; }
APART static void moved_away(int rank) {
  if (rank > 1) { std::cerr << "engine: no device " << rank << " of this kind" << std::endl; abort(); }
}
APART static int at(std::vector<int> &row, int place) { return row[place]; }
int main(int count, char **words) {
  std::vector<int> row(3);
  if (!strcmp(words[1], "stream")) stream(count);
  if (!strcmp(words[1], "cerr")) moved_away(count);
  if (!strcmp(words[1], "index")) return at(row, count + 7);
}
"""


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("streams"), STREAMS, "-O2", "-D_GLIBCXX_ASSERTIONS", cxx=True)


def test_a_message_that_a_destructor_finishes(streams: Path) -> None:
    words = captured(streams, "stream").last_words
    assert words is not None
    assert (words.text, words.where) == ("planner: rank 2 is not supported here", _IN_MEMORY)


def test_pieces_of_a_message_without_its_values(streams: Path) -> None:
    words = captured(streams, "cerr").last_words
    assert words is not None
    assert words.text == "engine: no device \N{HORIZONTAL ELLIPSIS} of this kind"


def test_the_line_of_a_failed_assertion_of_the_library(streams: Path) -> None:
    (message,) = captured(streams, "index").messages or ()
    assert message.kind == "libstdcxx-assertion"
    assert message.fields["expression"] == "__n < this->size()"
    assert message.where.endswith("not read from stderr")
