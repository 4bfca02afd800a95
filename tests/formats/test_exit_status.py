"""Exit codes in any spelling; the readings are those of the places that show them so."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.errors import UnknownCodeError
from necropsy.formats import exit_readings, exit_status
from necropsy.formats.exit_status import ExitCode
from necropsy.formats.statuses import exit_codes, name_of_status, signals, status_of_name, statuses, subcodes


def one(*words: str) -> ExitCode:
    (code,) = exit_status.read(words)
    return code


def best(*words: str) -> tuple[str, int]:
    reading = one(*words).best
    return reading.kind, reading.value


SEGV, ABRT, KILL = ("signal", 11), ("signal", 6), ("signal", 9)
OVERRUN, OVERFLOW, VIOLATION = ("status", 0xC0000409), ("status", 0xC00000FD), ("status", 0xC0000005)


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ("0xC0000409", OVERRUN),
        ("0XC0000409", OVERRUN),
        ("c0000409", OVERRUN),
        ("-1073740791", OVERRUN),
        ("3221226505", OVERRUN),
        ("STATUS_STACK_BUFFER_OVERRUN", OVERRUN),
        ("stack_buffer_overrun", OVERRUN),
        ("0x409", OVERRUN),
        ("Process finished with exit code -1073740791 (0xC0000409)", OVERRUN),
        ("-1073741571", OVERFLOW),
        ("0xc00000fd", OVERFLOW),
        ("EXCEPTION_STACK_OVERFLOW", OVERFLOW),
        ("EXCEPTION_INT_DIVIDE_BY_ZERO", ("status", 0xC0000094)),
        ("c0000005", VIOLATION),
        ("-1073741819", VIOLATION),
        ("0xD0000005", VIOLATION),
        ("0xFFFFFFFFC0000409", OVERRUN),
        ("18446744072635810825", OVERRUN),
        ("-1073740791.0", OVERRUN),
        ("\u22121073740791", OVERRUN),
        ("-1,073,740,791", OVERRUN),
        ("1073740791", OVERRUN),
        ("3221226505u", OVERRUN),
        ("c0000409h", OVERRUN),
        ("exit code: c0000409", OVERRUN),
        ("(0xC0000409)", OVERRUN),
        ("0x8007007E", ("status", 0x8007007E)),
        ("529697949", ("status", 0xE06D7363)),
        ("Speicherzugriffsfehler (Speicherabzug geschrieben)", SEGV),
        ("\u6bb5\u9519\u8bef", SEGV),
        ("Erreur de segmentation", SEGV),
        ("[process exited with code 3221225786 (0xc000013a)]", ("status", 0xC000013A)),
        ("80000003", ("status", 0x80000003)),
        ("139", SEGV),
        ("-11", SEGV),
        ("SIGSEGV", SEGV),
        ("segv", SEGV),
        ("exit code 139", SEGV),
        ("rc=-11", SEGV),
        ("signal 11", SEGV),
        ("Segmentation fault (core dumped)", SEGV),
        ("code=killed, status=11/SEGV", ("exit", 11)),
        ("make: *** [all] Error 139", SEGV),
        ("0x8B", SEGV),
        ("134", ABRT),
        ("-6", ABRT),
        ("Aborted (core dumped)", ABRT),
        ("137", KILL),
        ("Killed", KILL),
        ("34304", ABRT),
        ("267", SEGV),
        ("3", ("exit", 3)),
        ("1", ("exit", 1)),
        ("0", ("exit", 0)),
        ("127", ("exit", 127)),
        ("42", ("exit", 42)),
        ("4294967295", ("exit", -1)),
        ("-100", ("exit", -100)),
        ("FAST_FAIL_FATAL_APP_EXIT", ("subcode", 7)),
        ("subcode 7", ("subcode", 7)),
    ],
)
def test_spellings(spelled: str, expected: tuple[str, int]) -> None:
    reading = exit_status.read([spelled])[0].best
    assert (reading.kind, reading.value) == expected


@pytest.mark.parametrize(
    "said",
    ["step 0 of 100 failed", "it stopped at epoch 139", "after 9 hours with 11 workers", "3 workers died", "line 137"],
)
def test_a_number_in_a_sentence_is_no_exit_code_where_nothing_says_so(said: str) -> None:
    with pytest.raises(UnknownCodeError):
        exit_status.read([said])


def test_words_around_a_code_need_no_quotes() -> None:
    assert best("exit", "code", "139") == SEGV
    assert best("killed", "by", "signal", "9") == KILL


def values(spelled: str, kind: str) -> list[int]:
    return [reading.value for reading in one(spelled).readings if reading.kind == kind]


def test_ambiguous_codes_keep_all_their_readings() -> None:
    assert values("134", "exit") == [134]
    assert values("139", "status") == [0xC0000005], "Git Bash"
    assert values("11", "signal") == [11]
    assert values("9", "status") == [0xC0000409], "the last byte, under WSL"
    assert values("5", "status") == [0xC0000005]
    assert values("245", "signal") == [11], "a launcher in Python that passes -11 on"
    assert values("1073740791", "exit") == [1073740791]


@pytest.mark.parametrize("spelled", ["1", "2", "3"])
def test_everyday_codes_are_never_read_as_a_crash(spelled: str) -> None:
    assert {reading.kind for reading in one(spelled).readings} == {"exit"}


def test_a_signal_in_any_spelling() -> None:
    for spelled in ("11", "SIGSEGV", "segv", "Segmentation fault", "Segmentation fault: 11", "Erreur de segmentation"):
        assert exit_status.signal_number(spelled) == 11, spelled
    for spelled in ("", "0", "65", "SIGFOO", "1" * 5000, "fault"):
        assert exit_status.signal_number(spelled) is None, spelled


def test_a_number_in_any_spelling() -> None:
    for spelled in ("-1073740791", "-1,073,740,791", "\u22121073740791", " -0x3FFFFBF7 "):
        assert exit_status.number(spelled) == -1073740791, spelled
    for spelled in ("", "x", "1.5", "12 34", "1" * 5000, "0x"):
        assert exit_status.number(spelled) is None, spelled


def test_the_status_of_waitpid() -> None:
    def wait(number: int) -> tuple[str, int]:
        reading = exit_readings.of_wait_status(number, str(number))[0]
        return reading.kind, reading.value

    assert wait(11) == wait(139) == SEGV
    assert wait(256) == ("exit", 1)
    assert wait(139 << 8) == SEGV


def test_ends_in_the_models_form() -> None:
    def end(spelled: str) -> tuple[str, int | None, str | None]:
        made = exit_status.exit_of(one(spelled).best, spelled)
        return made.kind, made.code, made.signal

    assert end("139") == ("signaled", None, "SIGSEGV")
    assert end("3221226505") == ("exited", -1073740791, None)
    assert end("1") == ("exited", 1, None)
    made = exit_status.exit_of(one("FAST_FAIL_FATAL_APP_EXIT").best, "7")
    assert made.ntstatus is not None and made.ntstatus.fast_fail is not None
    assert (made.ntstatus.value, made.ntstatus.fast_fail.code) == ("0xC0000409", 7)


@pytest.mark.parametrize("spelled", ["foo", "", "0x1FFFFFFFF", "-99999999999", "???", "SIGFOO", "exit code"])
def test_what_is_no_code_is_refused(spelled: str) -> None:
    with pytest.raises(UnknownCodeError):
        exit_status.read([spelled])


def test_a_code_in_two_spellings_is_one() -> None:
    code = one("139", "SIGSEGV", "-11")
    assert code.also == ("SIGSEGV", "-11")


@given(st.integers(-(1 << 33), 1 << 33))
def test_every_number_is_read_or_refused(number: int) -> None:
    try:
        (code,) = exit_status.read([str(number)])
    except UnknownCodeError:
        assert not -(1 << 31) <= number < 1 << 32
        assert not 0xFFFFFFFF80000000 <= number < 1 << 64
    else:
        assert code.readings


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UnknownCodeError):
        assert all(code.readings for code in exit_status.read([text]))


@given(st.integers(0x80000000, 0xFFFEFFFF))
def test_a_status_is_the_same_in_hex_signed_and_unsigned(value: int) -> None:
    spellings = (f"{value:#x}", str(value), str(value - (1 << 32)))
    assert len({exit_status.read([spelled])[0].best.value for spelled in spellings}) == 1


def test_a_status_in_the_models_form() -> None:
    status = exit_status.nt_status(0xC0000409)
    assert (status.value, status.signed, status.name) == ("0xC0000409", -1073740791, "STATUS_STACK_BUFFER_OVERRUN")


# ---------------------------------------------------------------- against this machine


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of Linux")
def test_signal_numbers_are_this_systems() -> None:
    assert {number: entry.name for number, entry in signals().items()} == {
        number: signal.Signals(number).name for number in signals()
    }


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of Linux")
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_a_real_shell_and_a_real_parent_show_what_we_read(name: str) -> None:
    number = getattr(signal, name)
    code = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {int(number)})"
    shell = subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{code}"; exit $?'], capture_output=True, check=False)
    direct = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    wait = os.waitstatus_to_exitcode(number)
    assert best(str(shell.returncode)) == best(str(direct.returncode)) == best(str(wait)) == ("signal", number)


# ---------------------------------------------------------------- the tables


def test_every_entry_says_what_it_must() -> None:
    for entry in (*signals().values(), *exit_codes().values(), *statuses().values()):
        assert entry.what.endswith("."), entry.name
        assert entry.mistaken.endswith("."), entry.name
        assert entry.next, entry.name
        assert entry.source, entry.name
        for cause in entry.causes:
            assert cause.decide, (entry.name, cause.cause)
            assert not cause.cause.endswith("."), entry.name


def test_what_people_ask_for_has_causes() -> None:
    for value in (
        *(0xC0000409, 0xC0000005, 0xC00000FD, 0xC0000374, 0xC000001D, 0xC0000135, 0xC0000139, 0xC0000142, 0xC000007B),
        *(0xE06D7363, 0xC06D007E, 0xC06D007F, 0xC0000094, 0xC0000420, 0x40010004, 0xC000013A, 0x80000003),
    ):
        assert statuses()[value].causes, hex(value)
    for number in (11, 6, 9, 8, 4, 7, 15, 5):
        assert signals()[number].causes, number
    for code in (124, 3, 1, 255):
        assert exit_codes()[code].causes, code


def test_the_causes_of_0xc0000409_stand_in_the_order_of_what_was_counted() -> None:
    shares = [cause.share for cause in statuses()[0xC0000409].causes]
    counted = [int(share.split()[0]) for share in shares if share is not None and share[0].isdigit()]
    assert counted == [7, 2, 2, 1, 1] and sum(counted) == 13
    assert shares[-1] == "none of 13", "a real overrun is the last one"


def test_statuses_bear_microsofts_names() -> None:
    names = json.loads(files("necropsy.data").joinpath("ntstatus.json").read_text())["names"]
    for value, entry in statuses().items():
        listed = names.get(f"0x{value:08X}")
        if listed is not None:
            assert entry.name in ([listed] if isinstance(listed, str) else listed)


def test_names_lead_back_to_their_values() -> None:
    assert name_of_status(0xC0000409) == "STATUS_STACK_BUFFER_OVERRUN"
    assert name_of_status(0xC0FFEE00) is None
    assert status_of_name("HEAP_CORRUPTION") == 0xC0000374
    assert status_of_name("STATUS_NO_SUCH_THING") is None


def test_subcodes() -> None:
    assert subcodes()[7].name == "FAST_FAIL_FATAL_APP_EXIT"
    assert subcodes()[2].name == "FAST_FAIL_STACK_COOKIE_CHECK_FAILURE"
    assert not {15, 16, 17} & set(subcodes())
