from __future__ import annotations

import signal
import struct

import pytest

from necropsy.formats.siginfo import decode, name_of


def raw(signo: int, code: int, *, address: int = 0, sender: int | None = None) -> bytes:
    union = struct.pack("<ii", sender, 0) if sender is not None else struct.pack("<Q", address)
    return (struct.pack("<iiii", signo, 0, code, 0) + union).ljust(128, b"\0")


@pytest.mark.parametrize(
    ("signo", "code", "said"),
    [
        (signal.SIGSEGV, 1, "SEGV_MAPERR"),
        (signal.SIGSEGV, 2, "SEGV_ACCERR"),
        (signal.SIGSEGV, 4, "SEGV_PKUERR"),
        (signal.SIGBUS, 2, "BUS_ADRERR"),
        (signal.SIGFPE, 1, "FPE_INTDIV"),
        (signal.SIGILL, 2, "ILL_ILLOPN"),
        (signal.SIGTRAP, 0x80, "SI_KERNEL"),
        (signal.SIGSYS, 1, "SYS_SECCOMP"),
        (signal.SIGABRT, -6, "SI_TKILL"),
        (signal.SIGTERM, 0, "SI_USER"),
        (signal.SIGSEGV, 77, "77"),
    ],
)
def test_codes_have_their_names(signo: int, code: int, said: str) -> None:
    assert decode(raw(signo, code)).code == said


def test_an_address_of_zero_is_an_address() -> None:
    assert decode(raw(signal.SIGSEGV, 1, address=0)).address == 0


def test_where_the_kernel_does_not_know_the_address_there_is_none() -> None:
    assert decode(raw(signal.SIGSEGV, 0x80, address=0)).address is None


def test_a_signal_that_was_sent_has_a_sender_and_no_address() -> None:
    info = decode(raw(signal.SIGSEGV, 0, sender=4711))
    assert (info.sender, info.address) == (4711, None)


def test_an_address_has_all_its_bits() -> None:
    assert decode(raw(signal.SIGSEGV, 1, address=0xFFFFFFFFFFFFFFF8)).address == 0xFFFFFFFFFFFFFFF8


def test_signals_without_a_name_keep_their_number() -> None:
    assert name_of(int(signal.SIGRTMIN) + 3) == "SIGRTMIN+3"
    assert name_of(4000) == "signal 4000"
