"""A load that the supervisor saw fail, beside what the program said of it: when it is why the program ended."""

from __future__ import annotations

import pytest

from necropsy.diagnose import diagnose
from necropsy.formats import log
from necropsy.model import CppException, Crash, Diagnosis, Exit, FastFail, Message, NtStatus
from necropsy.rules import crash_rules

TRACEBACK = 'Traceback (most recent call last):\n  File "C:\\train.py", line 3, in <module>\n'
NOT_FOUND, NO_PROCEDURE = "The specified module could not be found.", "The specified procedure could not be found."
NOT_FOUND_IN_GERMAN = "Das angegebene Modul wurde nicht gefunden."


def import_error(module: str, text: str = NOT_FOUND) -> str:
    return f"{TRACEBACK}ImportError: DLL load failed while importing {module}: {text}\n"


def load(kind: str = "missing-library", **fields: str) -> Message:
    """``outer.pyd`` was to be loaded, and ``inner.dll`` was not there for its library ``middle.dll``."""
    known = {"library": "inner.dll", "load": "outer.cp311-win_amd64.pyd", "importer": "middle.dll"} | fields
    known = {"path": "C:\\own\\" + known["importer"], "looked": "C:\\own; C:\\Python", "seconds": "0.010"} | known
    text = f"{known['library']} was not found, which {known['importer']} imports"
    return Message(kind=kind, text=text, where="debug events and import tables", fields=known)


def judged(
    seen: Message, said: str | None = None, *, end: Exit | None = None, cpp: CppException | None = None
) -> Diagnosis | None:
    end = end or Exit(kind="exited", code=1)
    messages = (*(log.scan(said) if said is not None else ()), seen)
    crash = Crash(exit=end, log_tail=said, messages=messages, cpp_exception=cpp)
    report = diagnose(crash, crash_rules())
    assert not [gap for gap in report.gaps if gap.part.startswith("rule ")], report.gaps
    return report.verdict


@pytest.mark.parametrize("text", [NOT_FOUND, NOT_FOUND_IN_GERMAN, "Module not found."])
def test_what_the_exception_does_not_say_is_named(text: str) -> None:
    verdict = judged(load(), import_error("outer", text))
    assert verdict is not None
    assert (verdict.rule, verdict.confidence) == ("missing-library", "certain")
    assert verdict.summary == (
        "`outer.cp311-win_amd64.pyd` could not be loaded: the DLL `inner.dll` that its library `middle.dll` needs was not "
        "found."
    )
    assert [one.where for one in verdict.evidence] == ["debug events and import tables", "log line 3", "exit status"]
    assert verdict.fixes[0].command == "where /R C:\\ inner.dll"


def test_a_package_that_says_it_in_its_own_words() -> None:
    said = (
        f"{TRACEBACK}OSError: [WinError 126] {NOT_FOUND} "
        'Error loading "C:\\torch\\lib\\c10_cuda.dll" or one of its dependencies.\n'
    )
    verdict = judged(load(load="c10_cuda.dll", importer="c10_cuda.dll", library="zip.dll"), said)
    assert verdict is not None
    assert verdict.summary == "`c10_cuda.dll` could not be loaded: the DLL `zip.dll` that it needs was not found."


def test_an_import_of_another_library_is_another_story() -> None:
    verdict = judged(load(last="yes"), import_error("another"))
    assert verdict is not None
    assert "inner.dll" not in verdict.summary


def test_a_load_that_the_program_lived_without_is_no_cause() -> None:
    verdict = judged(load(last="yes"), f"{TRACEBACK}ValueError: no data\n")
    assert verdict is not None and verdict.rule == "python-exception"


def test_without_the_log_the_last_load_may_be_why() -> None:
    verdict = judged(load(last="yes"))
    assert verdict is not None
    assert (verdict.rule, verdict.confidence) == ("missing-library", "possible")
    assert any("0.010 s before the end" in one.seen for one in verdict.evidence)


@pytest.mark.parametrize("fields", [{}, {"last": "yes", "seconds": "36000.000"}], ids=["not the last", "long ago"])
def test_without_the_log_another_load_is_not_blamed(fields: dict[str, str]) -> None:
    verdict = judged(load(**fields))
    assert verdict is not None and verdict.rule == "exit-status-only"


def test_who_ends_well_has_no_trouble() -> None:
    assert judged(load(last="yes"), end=Exit(kind="exited", code=0)) is None


ABORTED = Exit(
    kind="exited",
    code=-1073740791,
    ntstatus=NtStatus(
        value="0xC0000409",
        name="STATUS_STACK_BUFFER_OVERRUN",
        signed=-1073740791,
        fast_fail=FastFail(code=7, name="FAST_FAIL_FATAL_APP_EXIT"),
    ),
)


def test_an_abort_right_after_it_may_be_its_work() -> None:
    verdict = judged(load(last="yes"), end=ABORTED)
    assert verdict is not None
    assert (verdict.rule, verdict.confidence) == ("missing-library", "possible")


def test_an_abort_that_says_why_is_not_its_work() -> None:
    verdict = judged(load(last="yes"), end=ABORTED, cpp=CppException(type="std::runtime_error", what="bad shape"))
    assert verdict is not None and verdict.rule == "abort"


def test_one_that_lies_where_python_does_not_look() -> None:
    verdict = judged(load(lies="C:\\CUDA\\bin"), import_error("outer"))
    assert verdict is not None
    assert "is in C:\\CUDA\\bin, which is not searched" in verdict.summary
    assert verdict.fixes[0].command == 'os.add_dll_directory(r"C:\\CUDA\\bin")'


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("python39.dll", "built for Python 3.9"),
        ("python312_d.dll", "built for Python 3.12 (a debug build)"),
        ("MSVCP140D.dll", "built by Visual C++ for debugging"),
        ("VCRUNTIME140_1.dll", "Visual C++ Redistributable"),
        ("inner.dll", "Install the package that holds `inner.dll` in the version that `middle.dll` was built with"),
    ],
)
def test_the_name_tells_what_to_do(library: str, says: str) -> None:
    verdict = judged(load(library=library), import_error("outer"))
    assert verdict is not None and says in verdict.fixes[0].text


def test_a_library_of_cuda_is_told_by_its_own_rule() -> None:
    seen = load(library="cudnn64_8.dll", load="_pywrap.pyd", importer="_pywrap.pyd")
    verdict = judged(seen, import_error("_pywrap"))
    assert verdict is not None
    assert (verdict.rule, verdict.confidence) == ("cuda-library-missing", "certain")
    assert "cudnn64_8.dll" in verdict.summary


def test_a_function_that_is_lacking_is_no_missing_file() -> None:
    verdict = judged(load("undefined-symbol", symbol="two"), import_error("outer", NO_PROCEDURE))
    assert verdict is not None
    assert (verdict.rule, verdict.confidence) == ("undefined-symbol", "certain")
    assert verdict.summary.startswith("`middle.dll` needs `two`, which `inner.dll` does not offer")


def test_a_file_for_another_processor() -> None:
    said = import_error("outer", "%1 is not a valid Win32 application.")
    verdict = judged(load("bad-library-file", file="C:\\32\\inner.dll"), said)
    assert verdict is not None
    assert "is there, but for another processor" in verdict.summary
    assert verdict.fixes[0].command == "dumpbin /headers C:\\32\\inner.dll"
