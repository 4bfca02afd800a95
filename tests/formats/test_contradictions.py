"""What cannot both be true of one death, and which of the two is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats import contradictions, exit_status
from necropsy.formats.exit_status import exit_of
from necropsy.model import Contradiction, Exit


def codes(*words: str) -> tuple[Contradiction, ...]:
    return contradictions.of_codes(exit_status.read(words))


def ends(*texts: str) -> tuple[Contradiction, ...]:
    """The contradictions between the ends that are spelled at the end of each text."""
    return contradictions.of_exits([exit_of(exit_status.read([text.split()[-1]])[0].best, text) for text in texts])


def test_a_number_is_believed_rather_than_a_name() -> None:
    (found,) = codes("-1073741571", "STATUS_STACK_BUFFER_OVERRUN")
    assert found.said == "-1073741571 (0xC00000FD STATUS_STACK_OVERFLOW)"
    assert found.against == "STATUS_STACK_BUFFER_OVERRUN (0xC0000409, -1073740791)"
    assert found.right == "0xC00000FD STATUS_STACK_OVERFLOW"
    assert "the number comes from the system" in found.why
    assert "mix up" in found.why
    assert codes("STATUS_STACK_BUFFER_OVERRUN", "-1073741571") == (found,), "in either order"


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("137", "SIGSEGV"), "SIGKILL"),
        (("139", "Aborted (core dumped)"), "SIGSEGV"),
        (("exit code 139", "SIGABRT"), "SIGSEGV"),
        (("0xC0000374", "STATUS_ACCESS_VIOLATION"), "0xC0000374 STATUS_HEAP_CORRUPTION"),
        (("0xC0000005", "SIGABRT"), "0xC0000005 STATUS_ACCESS_VIOLATION"),
    ],
)
def test_which_is_right(words: tuple[str, ...], right: str) -> None:
    (found,) = codes(*words)
    assert found.right == right


@pytest.mark.parametrize(
    "words", [("139", "134"), ("-1073741571 (0xC0000409)",), ("SIGSEGV", "SIGABRT"), ("139", "137")]
)
def test_of_two_numbers_or_two_names_nobody_knows(words: tuple[str, ...]) -> None:
    (found,) = codes(*words)
    assert found.right is None
    assert "ends once" in found.why


@pytest.mark.parametrize(
    "words",
    [
        ("139", "SIGSEGV", "-11"),
        ("139", "1"),
        ("1", "0xC0000409"),
        ("139", "0xC0000005"),
        ("127", "0xC0000409"),
        ("3", "0xC0000409"),
        ("9", "0xC0000409"),
        ("SIGABRT", "0xC0000409"),
        ("0xD0000005", "0xC0000005"),
        ("0xC0000409", "FAST_FAIL_FATAL_APP_EXIT"),
        ("-1073740791 (0xC0000409)",),
        ("0", "1"),
    ],
)
def test_two_forms_of_one_end_do_not_contradict(words: tuple[str, ...]) -> None:
    assert codes(*words) == ()


def test_a_code_that_was_given_and_what_a_text_says() -> None:
    (found,) = ends("137", "Process finished with exit code 139")
    assert found.said == "137 (SIGKILL)"
    assert found.against == 'SIGSEGV ("Process finished with exit code 139")'
    assert found.right is None


def test_a_launcher_and_its_worker_are_two_processes() -> None:
    assert ends("worker exited with code 139", "launcher: exit status 1") == ()
    assert ends("rank 0 ended by SIGSEGV", "rank 1 ended by SIGTERM") == (), "who runs them ends the others"
    assert ends("rank 0 ended by SIGSEGV", "137") != (), "a bare number was given as the end of this one"


def test_a_sentence_that_contradicts_itself() -> None:
    (found,) = contradictions.of_exits(
        [Exit(kind="unknown", text="Process finished with exit code -1073741571 (0xC0000409)")]
    )
    assert found.right is None
    assert "-1073741571 (0xC00000FD STATUS_STACK_OVERFLOW)" in found.said
    (found,) = contradictions.of_exits([Exit(kind="unknown", text="exit code 137 (interrupted by signal 11:SIGSEGV)")])
    assert found.right == "SIGKILL"
    for text in (
        "Process finished with exit code -1073740791 (0xC0000409)",
        "Process finished with exit code 137 (interrupted by signal 9:SIGKILL)",
        "process 1073741819 of user 1000 at 0xC0000005deadbeef",
        "line 3: 12345 Killed python",
    ):
        assert contradictions.of_exits([Exit(kind="unknown", text=text)]) == (), text


@given(st.lists(st.builds(Exit, kind=st.sampled_from(["exited", "signaled", "lost"]), code=st.none() | st.integers(), signal=st.none() | st.text(max_size=9), text=st.none() | st.text(max_size=60)), max_size=5))  # fmt: skip
def test_any_ends_are_taken(made: list[Exit]) -> None:
    assert isinstance(contradictions.of_exits(made), tuple)
