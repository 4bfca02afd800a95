"""How the end of what the command writes to stderr is read, by the kind of file that fd 2 is.

=========  ============================================================================================================
``file``   a regular file: its end is read back; nothing of the command changes
``probe``  the kernel copies what was written to fd 2 to us (``bpf_probe``): nothing of ours stands in the way
``tap``    a seccomp filter shows us each write to fd 2 (``seccomp_tap``): fd 2 stays the command's own
``pty``    fd 2 is a pseudoterminal or a pipe of ours, and a relay passes the bytes on (``pty_relay``)
=========  ============================================================================================================

``auto`` uses the file if there is one, else the probe if it is available, else nothing. With a tap or a relay, the
command's writes wait for necropsy, and fail if all its processes are killed: so both are opt-in. ``tap`` also prefers
the file and the probe, which show the same for less, and installs the filter only if neither is available.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from necropsy.capture.linux.stderr import bpf_probe
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.shared_memory import Ring
from necropsy.capture.linux.supervise.traced_processes import status_of
from necropsy.capture.process.secret_bytes import masked_log
from necropsy.model import Gap

LIMIT = 256 * 1024
_PROBE = (5, 13)
"""The first Linux that has what the probe needs."""
_ADVICE = "run again with --log tap, or with 2>log.txt"


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)


@dataclass
class Log:
    """The decision, and the reader of the result. ``why`` says why there is nothing to read."""

    mode: str
    why: str | None = None
    ring: Ring | None = None
    no_new_privs: bool = False
    target: os.stat_result | None = None
    """What fd 2 of the command is."""
    start: int = 0
    is_wanted: bool = False
    """It would be read if this were possible."""
    probe: bpf_probe.BpfProbe | None = None
    may_probe: bool = False
    """A tap was asked for, and the probe may do its work: the tracer tries it before the command installs a filter."""

    def instead(self) -> Log:
        """Only for the tracer: the same with the probe in the tap's place, or as it is where that fails."""
        try:
            return replace(self, mode="probe", ring=None, probe=bpf_probe.BpfProbe.open()) if self.may_probe else self
        except OSError:
            return self

    def opened(self) -> Log:
        """Only for the tracer: the same with its probe, or none where the kernel does not want one."""
        if self.mode != "probe" or self.probe is not None:
            return self
        try:
            return replace(self, probe=bpf_probe.BpfProbe.open())
        except OSError as error:
            return Log("off", why=f"stderr could not be watched: {error.strerror}; {_ADVICE}", is_wanted=True)

    def unless_refused(self, number: int) -> Log:
        """The same, or none where the command could not be tapped: ``number`` is the errno, or 0."""
        if not number:
            return self
        other = " (another program taps it already)" if number == errno.EBUSY else ""
        return Log("off", why=f"the tap was refused: {os.strerror(number)}{other}")

    def settle(self) -> None:
        """Wait until a relay has passed on what was written so far."""
        if self.mode == "pty" and self.ring is not None:
            from necropsy.capture.linux.stderr.pty_relay import settle

            settle(self.ring)

    def tail(self, pid: int | None = None) -> tuple[str | None, tuple[Gap, ...]]:
        """The log's end for a process (None: for the run), and what is missing of it."""
        if self.why is not None:
            return None, (Gap(part="log_tail", why=self.why),)
        elsewhere = self._elsewhere(pid) if pid is not None else None
        if elsewhere:
            return None, (Gap(part="log_tail", why=elsewhere),)
        kept = self.ring or self.probe
        try:
            data = kept.tail() if kept is not None else self._read_back()
        except OSError as error:
            return None, (Gap(part="log_tail", why=f"stderr is a file that cannot be read: {error.strerror}"),)
        missed = kept.missed if kept is not None else 0
        gaps = (Gap(part="log_tail", why=f"{missed} writes to stderr could not be read"),) if missed else ()
        return masked_log(without_cut_line(data).decode("utf-8", "replace")), gaps

    def _elsewhere(self, pid: int) -> str | None:
        try:
            theirs = Path(f"/proc/{pid}/fd/2").stat()
        except OSError:
            return None  # closed or gone by now: what it wrote before still counts
        if self.target is None or _same(theirs, self.target):
            return None
        return "the process had sent its stderr elsewhere"

    def _read_back(self) -> bytes:
        own = os.fstat(2)
        # fd 2 of ours and the command's are one open file description: its offset is where the log ends.
        position = os.lseek(2, 0, os.SEEK_CUR)
        end = own.st_size if _appends() or not position else min(position, own.st_size)
        begin = self.start if self.start <= end else 0  # smaller than it was: truncated meanwhile
        begin = max(begin, end - LIMIT)
        handle = os.open("/proc/self/fd/2", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            return os.pread(handle, end - begin, begin).lstrip(b"\0")
        finally:
            os.close(handle)


def without_cut_line(data: bytes) -> bytes:
    """The tail of a longer log without its first line, whose beginning is missing: it may be the rest of a secret."""
    if len(data) < LIMIT:
        return data
    _, end, rest = data.partition(b"\n")
    return rest if end else data


def _appends() -> bool:
    import fcntl

    return bool(fcntl.fcntl(2, fcntl.F_GETFL) & os.O_APPEND)


def _kind(target: os.stat_result) -> str:
    mode = target.st_mode
    if os.isatty(2):
        return "a terminal"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _is_traced() -> bool:
    return status_of(os.getpid()).get("TracerPid", "0") != "0"


def choose(asked: str) -> Log:
    """How to read the log: ``asked`` is auto, probe, tap, pty or off. Looks only, changes nothing."""
    if asked == "off":
        return Log("off", why="not asked for (--log off)")
    try:
        target = os.fstat(2)
    except OSError:
        return Log("off", why="stderr is closed")
    if stat.S_ISCHR(target.st_mode) and target.st_rdev == os.makedev(1, 3):
        return Log("off", why="stderr goes to /dev/null")
    if asked == "pty":
        return Log("pty", ring=Ring(LIMIT))
    if stat.S_ISREG(target.st_mode) and (asked == "auto" or (asked == "tap" and os.access("/proc/self/fd/2", os.R_OK))):
        start = target.st_size if _appends() else os.lseek(2, 0, os.SEEK_CUR)
        return Log("file", target=target, start=start)
    if asked == "tap":
        if ptrace.kernel_version() < (5, 9):
            return _none(target, "this kernel is older than 5.9, which the tap needs")
        # Where another traces us already, nobody would tell the probe of the command's children.
        may_probe = ptrace.kernel_version() >= _PROBE and bpf_probe.is_allowed() and not _is_traced()
        from necropsy.capture.linux.stderr import seccomp_filter

        return Log("tap", ring=Ring(LIMIT), no_new_privs=seccomp_filter.needs_no_new_privs(), may_probe=may_probe)
    if ptrace.kernel_version() < _PROBE:
        return _none(target, "this kernel is older than 5.13, which the probe needs")
    if not bpf_probe.is_allowed():
        return _none(target, "reading it unasked needs CAP_BPF and CAP_PERFMON, on x86-64")
    return Log("probe")


def _none(target: os.stat_result, why: str) -> Log:
    return Log("off", why=f"stderr is {_kind(target)}, and {why}; {_ADVICE}", is_wanted=True)
