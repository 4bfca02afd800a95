"""What the files of the libraries at fault say, for the rules on environments: of a few, for each has to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.process.owning_package import package_of
from necropsy.errors import InputError
from necropsy.formats.cpu_features import processor_flags
from necropsy.formats.elf_dynamic import dynamic, end_of_segments
from necropsy.formats.op_abi import NUMPY_ONE, NUMPY_TWO
from necropsy.model import Crash, Library, Processor

_FRAMES = 16
_FILES = 6
_LARGEST = 16 << 20
"""Bytes of a library that is searched; larger ones are those of frameworks, of which tables tell."""
_NUMBERED = re.compile(r"(?P<stem>lib[\w+-]+?)\.so\.[\d.]+")


def added(crash: Crash, files: MappedFiles) -> Crash:
    """The crash with what is known of the libraries that its thread died in, and of other versions of these."""
    thread, known = crash.crashed_thread, crash.environment
    refused = crash.fault is not None and crash.fault.signal == "SIGILL"
    # The processor is named where this is the machine that it died on.
    if refused and known is not None and known.cpu is not None and (flags := processor_flags()) is not None:
        processor = Processor(name=known.cpu, flags=tuple(sorted(flags)), told_by="/proc/cpuinfo")
        known = msgspec.structs.replace(known, processor=processor)
        crash = msgspec.structs.replace(crash, environment=known)
    if thread is None or known is None or not thread.frames:
        return crash
    numpy = any((package_of(one.path) or ("",))[0] == "numpy" for one in files.files)
    addresses = [int(frame.address) for frame in thread.frames[:_FRAMES] if frame.address is not None]
    near = dict.fromkeys(one.path for address in addresses if (one := files.at(address)) is not None)
    stems = {match["stem"] for path in near if (match := _NUMBERED.fullmatch(path.rsplit("/", 1)[-1]))}
    wanted = [one for one in files.files if one.path in near]
    wanted += [one for one in files.files if one.path not in near and _stem(one) in stems]
    found = tuple(_facts(wanted[:_FILES], numpy=numpy, levels=refused))
    return msgspec.structs.replace(crash, environment=msgspec.structs.replace(known, libraries=found or None))


def _stem(file: MappedFile) -> str | None:
    match = _NUMBERED.fullmatch(file.name)
    return match["stem"] if match is not None else None


def _facts(files: list[MappedFile], *, numpy: bool, levels: bool) -> Iterator[Library]:
    for file in files:
        elf = file.elf if not file.replaced else None
        package = package_of(file.path)
        if elf is None:
            continue
        try:
            read = dynamic(elf) if levels or _stem(file) is not None else None
        except InputError:
            continue
        size = end_of_segments(elf)
        generation = None
        if numpy and package is not None and package[0] != "numpy" and size <= _LARGEST:
            generation = 2 if elf.find(NUMPY_TWO, 0, size) >= 0 else 1 if elf.find(NUMPY_ONE, 0, size) >= 0 else None
        if read is not None or generation is not None:
            defines = read.defines if read is not None else None
            level = read.isa_level if read is not None else None
            yield Library(path=file.path, defines=defines, numpy=generation, isa_level=level)
