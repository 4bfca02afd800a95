"""The GPUs of this machine and NVIDIA's driver, read below ``root``; the driver's library runs in a child process.

A container shows the PCI devices and the kernel module of its host. It may use a GPU only where it has the device file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy.doctor.loader import Loader, folders
from necropsy.model import CudaDriver, Gap, Gpu

TIMEOUT_S = 10.0
_SCRIPT = Path(__file__).with_name("ask_libcuda.py")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""The class of graphics and 3D controllers; a card's sound device has another one."""
_LIBRARY = "libcuda.so.1"
_WSL = "usr/lib/wsl/lib"
_TOLD_BY_RULES = {0, 100, 803, 804}
"""Results of cuInit: success, no device, and incompatible versions."""
_LEFT_OUT = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")


@dataclass
class Graphics:
    """What was found; ``driver`` is None where there is no GPU to use."""

    gpus: tuple[Gpu, ...]
    driver: CudaDriver | None = None
    gaps: list[Gap] = field(default_factory=list)


def find(variables: Mapping[str, str], machine: str, root: str = "/") -> Graphics:
    """The GPUs that a program started with ``variables`` may use, and their driver."""
    if is_hidden(variables):
        return _none("CUDA_VISIBLE_DEVICES hides every GPU")
    cards = _on_the_bus(root)
    nodes = _nodes(root)
    if not cards and not nodes:
        return _none("no NVIDIA GPU was found")
    kernel, told_by = _kernel(root)
    extra = (os.path.join(root, _WSL),) if os.path.isdir(os.path.join(root, _WSL)) else ()
    place, _ = Loader(machine, (*folders(variables.get("LD_LIBRARY_PATH", "")), *extra)).find(_LIBRARY, "", (), ())
    driver = CudaDriver(
        kernel=kernel,
        told_by=told_by,
        nodes=nodes,
        container=any(os.path.exists(os.path.join(root, one)) for one in (".dockerenv", "run/.containerenv")),
        library=place.path if place is not None else None,
        by=place.by if place is not None else None,
        version=_version(place.path) if place is not None else None,
    )
    found = Graphics(cards or tuple(Gpu() for _ in nodes), driver)
    if nodes and place is not None:
        _ask(found, driver, place.path, variables)
    return found


def is_hidden(variables: Mapping[str, str]) -> bool:
    """The shell keeps CUDA from using any GPU: the list of devices ends at the first that does not exist."""
    value = variables.get("CUDA_VISIBLE_DEVICES")
    return value is not None and value.strip().split(",")[0].strip() in {"", "-1", "NoDevFiles"}


def _none(why: str) -> Graphics:
    return Graphics((), None, [Gap(part="driver", why=why)])


def _on_the_bus(root: str) -> tuple[Gpu, ...]:
    folder = os.path.join(root, "sys/bus/pci/devices")
    found = []
    for bus in _names(folder):
        device = os.path.join(folder, bus)
        if _text(f"{device}/vendor") != _NVIDIA or not (_text(f"{device}/class") or "").startswith(_DISPLAY):
            continue
        # A card that was set aside for a virtual machine is none of this one's.
        if os.path.basename(os.path.realpath(f"{device}/driver")) in {"vfio-pci", "pci-stub"}:
            continue
        told = _text(os.path.join(root, "proc/driver/nvidia/gpus", bus, "information")) or ""
        model = re.search(r"^Model:\s*(.+)$", told, re.MULTILINE)
        found.append(Gpu(bus=bus, name=model[1].strip() if model else None))
    return tuple(found)


def _nodes(root: str) -> tuple[str, ...]:
    folder = os.path.join(root, "dev")
    found = [os.path.join(folder, one) for one in _names(folder) if re.fullmatch(r"nvidia\d+", one)]
    # Windows' subsystem for Linux has one device for every GPU, and brings the library where one is NVIDIA's.
    if os.path.exists(f"{folder}/dxg") and os.path.exists(os.path.join(root, _WSL, _LIBRARY)):
        found.append(f"{folder}/dxg")
    return tuple(found)


def _kernel(root: str) -> tuple[str | None, str | None]:
    path = os.path.join(root, "proc/driver/nvidia/version")
    match = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", _text(path) or "")
    if match is not None:
        return match[1], path
    path = os.path.join(root, "sys/module/nvidia/version")
    told = _text(path)
    return (told, path) if told else (None, None)


def _version(path: str) -> str | None:
    match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", os.path.realpath(path))
    return match[1] if match is not None else None


class _Answer(msgspec.Struct):
    answer: int
    version: int | None
    gpus: list[tuple[str, int, int]]


def _ask(found: Graphics, driver: CudaDriver, library: str, variables: Mapping[str, str]) -> None:
    """Ask the driver's library for GPUs; no answer becomes a gap."""
    kept = {name: value for name, value in variables.items() if name not in _LEFT_OUT}
    words = (sys.executable, "-I", "-S", "-c", _SCRIPT.read_text(encoding="utf-8"), library)
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, env=kept, timeout=TIMEOUT_S, check=False
        )
        said = msgspec.json.decode(done.stdout, type=_Answer)
    except subprocess.TimeoutExpired:
        found.gaps.append(Gap(part="gpu", why=f"{library} did not answer within {TIMEOUT_S:g} s"))
        return
    except OSError as error:
        found.gaps.append(Gap(part="gpu", why=f"the driver's library could not be asked: {error}"))
        return
    except msgspec.MsgspecError:
        found.gaps.append(Gap(part="gpu", why=f"{library} did not answer: {_end(done)}"))
        return
    supports = f"{said.version // 1000}.{said.version % 1000 // 10}" if said.version is not None else None
    found.driver = msgspec.structs.replace(driver, answer=said.answer, supports=supports)
    if said.answer not in _TOLD_BY_RULES:
        found.gaps.append(Gap(part="gpu", why=f"the driver does not start: cuInit returns {said.answer}"))
    if said.gpus:
        found.gpus = tuple(Gpu(name=name, capability=f"{major}.{minor}") for name, major, minor in said.gpus)


def _end(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        return f"the process that loaded it died by {signal.Signals(-done.returncode).name}"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"the process that loaded it ended with {done.returncode}"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return None
