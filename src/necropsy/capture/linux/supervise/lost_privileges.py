"""Rights that a program loses because it is traced: set-user-ID, set-group-ID and file capabilities.

The kernel grants none of them at exec under a tracer without CAP_SYS_PTRACE (``cap_bprm_creds_from_file`` in
security/commoncap.c). So the rights of a program's file are compared with the process's, and a difference is reported:
``sudo`` and ``ping`` fail in ways that do not lead to the cause.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.supervise.traced_processes import command_of, executable_of, status_of
from necropsy.model import Gap

_CAPABILITIES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner"),
    *("sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice"),
    *("sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap"),
    *("mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf"),
    "checkpoint_restore",
)
"""By number (linux/capability.h), without ``cap_``."""
_REVISION = 0xFF000000
_WORDS = {0x01000000: 1, 0x02000000: 2, 0x03000000: 2}
"""``struct vfs_cap_data``: how many pairs of permitted and inheritable sets, of 32 bits each."""


@dataclass
class LostPrivileges:
    """Tells of each program's file once."""

    _known: set[tuple[int, int]] = field(default_factory=set)

    def executed(self, pid: int) -> Gap | None:
        """A traced process has just executed a program: what it lost, which is also written to stderr. Never raises."""
        try:
            path, about, capabilities = _file_of(pid)
        except OSError:
            return None
        if not capabilities and not about.st_mode & (stat.S_ISUID | stat.S_ISGID):
            return None
        missing = _missing(status_of(pid), about, capabilities) if _grants(path, pid) else ""
        if not missing or (about.st_dev, about.st_ino) in self._known:
            return None
        self._known.add((about.st_dev, about.st_ino))
        why = f"{path} runs without {missing}: the kernel does not grant that to a traced process"
        _say(f"necropsy: {why}; run it without necropsy, or necropsy as root\n")
        return Gap(part="process", why=why)


def _file_of(pid: int) -> tuple[str, os.stat_result, int]:
    """The program's path, status and permitted capabilities. Raises OSError where process or file is gone."""
    link = f"/proc/{pid}/exe"
    try:
        return executable_of(pid) or link, Path(link).stat(), _permitted(link)
    except PermissionError:
        # Of a program that may be executed but not read, the kernel shows little more than its arguments.
        import shutil

        name = (command_of(pid) or ("",))[0]
        path = shutil.which(name) if name else None
        if path is None:
            raise
        return path, Path(path).stat(), _permitted(path)


def _permitted(path: str) -> int:
    try:
        data = _attribute(path)
        words = _WORDS[struct.unpack_from("<I", data)[0] & _REVISION]
        sets = struct.unpack_from(f"<{2 * words}I", data, 4)
    except OSError as error:
        if error.errno in {errno.ENODATA, errno.ENOTSUP}:
            return 0
        raise
    except (KeyError, struct.error):
        return 0
    return int(sum(permitted << (32 * index) for index, permitted in enumerate(sets[::2])))


def _attribute(path: str) -> bytes:
    """The file's capabilities as the file system keeps them. Raises OSError."""
    if hasattr(os, "getxattr"):
        return os.getxattr(path, "security.capability")
    # CPython that was built with musl does not have it, but its C library does.
    import ctypes

    room = ctypes.create_string_buffer(64)
    size = ctypes.CDLL(None, use_errno=True).getxattr(os.fsencode(path), b"security.capability", room, len(room))
    if size < 0:
        raise OSError(ctypes.get_errno(), "no capabilities", path)
    return room.raw[:size]


def _grants(path: str, pid: int) -> bool:
    for one in (f"/proc/{pid}/exe", path):
        with contextlib.suppress(OSError):
            return not os.statvfs(one).f_flag & os.ST_NOSUID
    return False


def _missing(status: dict[str, str], about: os.stat_result, capabilities: int) -> str:
    """What the process lacks, in words; empty where nothing is missing, or for another reason."""
    if not status or status.get("NoNewPrivs", "0") != "0":
        return ""
    missing = []
    user, group = (int(status[name].split()[1]) for name in ("Uid", "Gid"))
    if about.st_mode & stat.S_ISUID and user != about.st_uid:
        missing.append(f"its set-user-ID rights (user {_name(about.st_uid, 'passwd')})")
    if about.st_mode & stat.S_ISGID and about.st_mode & stat.S_IXGRP and group != about.st_gid:
        missing.append(f"its set-group-ID rights (group {_name(about.st_gid, 'group')})")
    lost = capabilities & int(status["CapBnd"], 16) & ~int(status["CapPrm"], 16)
    if lost:
        names = (f"cap_{name}" for bit, name in enumerate(_CAPABILITIES) if lost >> bit & 1)
        missing.append(f"its file's capabilities ({', '.join(names) or hex(lost)})")
    return " and ".join(missing)


def _name(number: int, table: str) -> str:
    """Of a user or a group, by the local table: a directory service could block."""
    with contextlib.suppress(OSError):
        for line in Path("/etc", table).read_text(errors="replace").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2] == str(number):
                return fields[0]
    return str(number)


def _say(line: str) -> None:
    """To stderr, unless that would block: the program is held meanwhile."""
    with contextlib.suppress(OSError):
        room = select.poll()
        room.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in room.poll(0)):
            os.write(2, line.encode(errors="backslashreplace"))
