"""Where stderr was not read: the names of the functions that report an error say who gave up."""

from __future__ import annotations

import msgspec
import pytest

from necropsy.diagnose import diagnose
from necropsy.model import CppException, Crash, Diagnosis, LastWords
from necropsy.rules import crash_rules
from sketch import crash as sketched

HEAD = """
    pid 4711
    signal SIGABRT SI_TKILL
    sent-by itself
    register rip=0x401000
    thread 4711 engine crashed
    frame raise @ libc.so.6
    frame abort @ libc.so.6
"""


def unheard(*frames: str, more: str = "") -> Crash:
    """An abort below these frames, innermost first; what it wrote was not seen."""
    text = HEAD + more + "\n" + "\n".join(f"frame {frame}" for frame in frames)
    return msgspec.structs.replace(sketched(text), messages=None)


def verdict_of(crash: Crash) -> Diagnosis:
    report = diagnose(crash, crash_rules())
    assert report.verdict is not None
    assert not [gap for gap in report.gaps if gap.part.startswith("rule ")]
    return report.verdict


@pytest.mark.parametrize(
    "frame",
    [
        "google::LogMessageFatal::~LogMessageFatal() @ ext.so",
        "absl::lts_20240722::log_internal::LogMessageFatal::~LogMessageFatal() @ ext.so",
        "tsl::internal::LogMessageFatal::~LogMessageFatal() @ libtensorflow_framework.so.2",
        "std::remove_reference<int*>::type tsl::internal::CheckNotNull<int*>(char const*, int, char const*, int*&&) @ x.so",
    ],
)
def test_a_check_is_known_by_who_reports_it(frame: str) -> None:
    verdict = verdict_of(unheard(frame, "engine::Plan(int) @ engine.so"))
    assert (verdict.rule, verdict.confidence) == ("check-failed", "likely")
    assert "`engine::Plan`" in verdict.summary
    assert "Its message was not seen" in verdict.summary


def test_a_check_quotes_what_memory_has_of_it() -> None:
    crash = unheard("google::LogMessageFatal::~LogMessageFatal() @ ext.so", "engine::Plan(int) @ engine.so")
    words = LastWords(text="no plan for this shape", where="found in memory, not read from stderr")
    verdict = verdict_of(msgspec.structs.replace(crash, last_words=words))
    assert verdict.rule == "check-failed"
    assert "(found in memory, not read from stderr): “no plan for this shape”" in verdict.summary


def test_an_assertion_of_the_library_is_known_by_who_reports_it() -> None:
    report = "std::__glibcxx_assert_fail(char const*, int, char const*, char const*) @ libstdc++.so.6"
    verdict = verdict_of(unheard(report, "at(std::vector<int>&, int) @ engine.so"))
    assert (verdict.rule, verdict.confidence) == ("assertion-failed", "likely")
    assert "`at`" in verdict.summary


@pytest.mark.parametrize("frame", ["__gxx_personality_v0 @ libstdc++.so.6", "__cxa_call_terminate @ libstdc++.so.6"])
def test_an_exception_that_may_not_leave_is_an_uncaught_one(frame: str) -> None:
    crash = unheard(frame, "_Unwind_RaiseException @ libgcc_s.so.1", "__cxa_throw @ libstdc++.so.6", "quiet() @ e.so")
    thrown = msgspec.structs.replace(crash, cpp_exception=CppException(type="std::runtime_error", what="no table"))
    verdict = verdict_of(thrown)
    assert verdict.rule == "uncaught-cpp-exception"
    assert '"no table"' in verdict.summary


def test_a_second_openmp_runtime_is_known_by_where_it_gave_up() -> None:
    frames = ("__kmp_fatal @ libiomp5.so", "__kmp_register_library_startup @ libiomp5.so", "fit() @ engine.so")
    two = "module /opt/a/libiomp5.so\nmodule /opt/b/libomp.so"
    assert verdict_of(unheard(*frames, more=two)).rule == "duplicate-openmp"
    # With one runtime it is some other error of OpenMP's.
    one = verdict_of(unheard(*frames, more="module /opt/a/libiomp5.so"))
    assert one.rule == "abort"
    assert "OpenMP runtime reported a fatal error" in one.summary


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ("QMessageLogger::fatal(char const*, ...) const @ libQt5Core.so.5", "Qt reported a fatal error"),
        ("Tcl_Panic @ libtcl8.6.so", "Tcl detected an inconsistent state"),
        ("rust_panic @ engine.so", "code written in Rust panicked"),
        ("MPIR_Handle_fatal_error @ libmpi.so.12", "MPI reported an error"),
    ],
)
def test_a_library_that_gives_up_is_known_by_name(frame: str, says: str) -> None:
    verdict = verdict_of(unheard(frame, "engine::Run() @ engine.so"))
    assert verdict.rule == "abort"
    assert says.lower() in verdict.summary.lower()
    assert verdict.culprit is not None
    assert verdict.culprit.function == "engine::Run()"


def test_a_like_name_is_nobodys_report() -> None:
    verdict = verdict_of(unheard("Tcl_Panicky @ engine.so", "engine::Run() @ engine.so"))
    assert verdict.rule == "abort"
    assert "Tcl detected" not in verdict.summary


def test_a_thread_that_nobody_joined_is_known_by_its_destructor() -> None:
    frames = ("std::terminate() @ libstdc++.so.6", "std::thread::~thread() @ engine.so", "engine::Stop() @ engine.so")
    verdict = verdict_of(unheard(*frames))
    assert verdict.rule == "abort"
    assert "std::terminate was called without an exception" in verdict.summary
    assert "Join or detach" in verdict.fixes[0].text


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        (("runtime.raise.abi0 @ x.so", "runtime.gopanic @ x.so", "runtime.goPanicIndex @ x.so"), "index out of range"),
        (("std::alloc::rust_oom @ x", "alloc::alloc::handle_alloc_error @ x"), "llocation of memory failed"),
        (
            ("VMError::report_and_die(int) @ libjvm.so", "report_java_out_of_memory(char const*) @ libjvm.so"),
            "OutOfMemoryError",
        ),
        (
            (
                "v8::internal::V8::FatalProcessOutOfMemory(char const*) @ node",
                "v8::internal::Heap::FatalProcessOutOfMemory(char const*) @ node",
            ),
            "heap of V8",
        ),
    ],
)
def test_the_outermost_function_of_a_runtime_says_why_it_gave_up(frames: tuple[str, ...], says: str) -> None:
    verdict = verdict_of(unheard(*frames))
    assert (verdict.rule, verdict.confidence) == ("abort", "likely")
    assert says in verdict.summary
