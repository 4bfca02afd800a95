"""GPU memory of each process by NVIDIA's management library (NVML), asked by a process of its own.

The library may be slow, and its faults must not be the tracer's. It is loaded only where a process of the run has
loaded CUDA. The helper process writes the readings into memory that it shares with the tracer.

Structures and functions: ``nvml.h`` of driver 470 and later.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import struct
import time
from collections.abc import Iterator

from necropsy.capture.linux.supervise import descriptors

_LIBRARY = "libnvidia-ml.so.1"
_LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses_{version}" for kind in ("Compute", "Graphics") for version in ("v3", "v2")
)
_MOST_PROCESSES, _MOST_DEVICES = 1000, 64
_UNKNOWN = (1 << 64) - 1
_HEAD, _ROW = struct.Struct("<QQ"), struct.Struct("<QQ")
"""Sequence number (odd while it is written) and number of rows; process and bytes."""
_SIZE = 1 << 15
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_KILLED_FIRST = b"1000"


class _Info(ctypes.Structure):
    """``nvmlProcessInfo_t``."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The library, loaded into this process."""

    def __init__(self) -> None:
        """Start it. Raises OSError or AttributeError where it is missing, too old, or does not start."""
        self._library = ctypes.CDLL(_LIBRARY)
        self._check(self._library.nvmlInit_v2())
        count = ctypes.c_uint()
        self._check(self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        self._devices: list[ctypes.c_void_p] = []
        for index in range(min(count.value, _MOST_DEVICES)):
            device = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) == 0:
                self._devices.append(device)
        # The newest of each kind that this driver has.
        found = [name for name in _LISTS if hasattr(self._library, name)]
        self._lists = [
            getattr(self._library, name) for name in found if name[:-1] + "3" not in found or name[-1] == "3"
        ]
        if not self._lists:
            raise OSError("the driver is too old")

    @staticmethod
    def _check(answer: int) -> None:
        if answer:
            raise OSError(f"NVML answers {answer}")

    def used(self) -> dict[int, int]:
        """Bytes by process, of all devices together."""
        found: dict[int, int] = {}
        for device in self._devices:
            of_device: dict[int, int] = {}
            for ask in self._lists:
                of_device |= dict(self._listed(ask, device))  # one with graphics is on both lists
            for pid, octets in of_device.items():
                found[pid] = found.get(pid, 0) + octets
        return found

    @staticmethod
    def _listed(ask: ctypes._NamedFuncPointer, device: ctypes.c_void_p) -> Iterator[tuple[int, int]]:
        rows, count = (_Info * _MOST_PROCESSES)(), ctypes.c_uint(_MOST_PROCESSES)
        if ask(device, ctypes.byref(count), rows) == 0:
            yield from ((one.pid, one.used) for one in rows[: count.value] if one.used != _UNKNOWN)


class GpuMemory:
    """What each process has of the GPUs' memory, as of a moment ago."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._shared: mmap.mmap | None = None
        self._pid: int | None = None

    def start(self) -> None:
        """Begin to ask, if that has not begun. Raises nothing."""
        if self._shared is not None:
            return
        self._shared = mmap.mmap(-1, _SIZE)
        tracer = os.getpid()
        with contextlib.suppress(OSError):
            self._pid = os.fork()
            if self._pid == 0:
                _serve(self._shared, self._interval_s, tracer)

    def of(self, pid: int) -> int | None:
        """Bytes of this process; None where it has none, or nobody knows."""
        return self._all().get(pid) if self._shared is not None else None

    def stop(self) -> None:
        """Ask no more; the loop reaps the process."""
        if self._pid:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        self._pid = None

    def _all(self) -> dict[int, int]:
        data = bytes(self._shared or b"")
        before, count = _HEAD.unpack_from(data)
        after, _ = _HEAD.unpack_from(self._shared or data)
        if before % 2 or before != after or count > _MOST_PROCESSES:
            return {}  # it is being written
        return dict(_ROW.unpack_from(data, _HEAD.size + _ROW.size * one) for one in range(count))


def _serve(shared: mmap.mmap, interval_s: float, tracer: int) -> None:
    """The process that asks, until the tracer ends."""
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NAME, b"necropsy-gpu", 0, 0, 0)
        descriptors.keep_only(())
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as own:  # noqa: PTH123
            own.write(_KILLED_FIRST)
        nvml = Nvml()
        sequence = 0
        while os.getppid() == tracer:
            begun = time.monotonic()
            rows = sorted(nvml.used().items())[:_MOST_PROCESSES]
            _HEAD.pack_into(shared, 0, sequence + 1, 0)
            for index, row in enumerate(rows):
                _ROW.pack_into(shared, _HEAD.size + _ROW.size * index, *row)
            sequence += 2
            _HEAD.pack_into(shared, 0, sequence, len(rows))
            time.sleep(max(interval_s, 100 * (time.monotonic() - begun)))
    finally:
        os._exit(0)
