"""Processes that map more files than anybody can look into, and what is read of them all the same."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder, modules
from necropsy.formats.elf import ElfFile
from writers import elf

MANY = 6000
"""More than are looked into; the kernel allows some 65,000 mappings."""
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) int null_read(void) { return *(volatile int *)0x18; }
int main(int argc, char **argv) {
  static char image[1 << 16];
  int file = open(argv[1], O_RDONLY);
  long size = read(file, image, sizeof image);
  for (int i = 0; i < atoi(argv[2]); i++) {
    char name[32]; snprintf(name, sizeof name, "module-%d", i);
    int module = memfd_create(name, MFD_CLOEXEC);
    if (module < 0 || write(module, image, size) != size) return 3;
    if (mmap(0, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, module, 0) == MAP_FAILED) return 4;
    close(module);
  }
  return null_read();
}
"""


class _Counted(ElfFile):
    count = 0

    def __init__(self, data: bytes) -> None:
        _Counted.count += 1
        super().__init__(data)


def test_of_too_many_files_those_with_frames_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build(tmp_path, PROGRAM, "-g", "-O0")
    image = tmp_path / "image"
    image.write_bytes(elf.library([("f", 0x100, 16)], build_id=b"\1" * 20))
    monkeypatch.setattr(modules, "ElfFile", _Counted)
    _Counted.count = 0
    with dying([str(program), str(image), str(MANY)]) as death:
        crash = crash_builder.capture(death)
    assert crash.modules is not None
    names = [one.path.rsplit("/", 1)[-1] for one in crash.modules]
    assert sum(name.startswith("memfd:module-") for name in names) == MANY
    assert 0 < sum(one.build_id == "01" * 20 for one in crash.modules) < modules.MOST_READ < MANY
    # Once for the build ID, once for the question whether one of them is a Python.
    assert _Counted.count <= 2 * modules.MOST_READ
    gap = crash.gap("modules")
    assert gap is not None
    assert f"of {len(crash.modules):,} files" in gap.why
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.frames is not None
    assert [frame.function for frame in thread.frames[:2]] == ["null_read", "main"]
    assert thread.complete
    assert next(one for one in crash.modules if one.path == str(program)).build_id is not None


def test_files_without_build_ids_do_not_use_up_our_descriptors(tmp_path: Path) -> None:
    program = build(tmp_path, PROGRAM, "-g", "-O0")
    image = tmp_path / "image"
    image.write_bytes(elf.library([("f", 0x100, 16)]))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with dying([str(program), str(image), "500"]) as death:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
        try:
            crash = crash_builder.capture(death)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [gap.part for gap in crash.gaps] == ["messages"]  # nobody read what it wrote
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.frames is not None
    assert [frame.function for frame in thread.frames[:2]] == ["null_read", "main"]
    assert thread.complete


def test_the_time_for_reading_files_is_bounded() -> None:
    budget = modules.Budget(most=10, seconds=1.0)
    assert budget.allows(0x1000)
    budget.spend(1.5)
    assert not budget.allows(0x2000)
    assert budget.allows(0x1000), "what was read before is at hand"
    assert budget.left_out == {0x2000}
