"""GPU memory in a profile, from a library that stands in for NVIDIA's: it says what the program has written to a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import build

NVML = r"""
#include <stdio.h>
#include <stdlib.h>
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };
int nvmlInit_v2(void) { if (getenv("FAKE_GPU_CRASHES")) abort(); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *rows) {
  char name[512]; snprintf(name, sizeof name, "%s.asked", getenv("FAKE_GPU"));
  FILE *asked = fopen(name, "a"); fputc('x', asked); fclose(asked);
  FILE *file = fopen(getenv("FAKE_GPU"), "r"); unsigned room = *count; *count = 0;
  struct process one = {0};
  while (file && *count < room && fscanf(file, "%u %llu", &one.pid, &one.used) == 2) rows[(*count)++] = one;
  if (file) fclose(file);
  rows[(*count)++] = (struct process){1, ~0ull, 0, 0}; /* not available */
  return 0;
}
"""
PROGRAM = """
import ctypes, os, time
ctypes.CDLL("libcuda.so.1")
used, asked = os.environ["FAKE_GPU"], os.environ["FAKE_GPU"] + ".asked"
def times(): return os.path.getsize(asked) if os.path.exists(asked) else 0
for mib in (300, 200):
    with open(used + ".new", "w") as file: file.write(f"{os.getpid()} {mib << 20}\\n")
    os.rename(file.name, used)
    before, until = times(), time.monotonic() + 60
    while times() < before + 20 and time.monotonic() < until: time.sleep(0.05)
    time.sleep(0.8)
"""
"""It goes on when the library has been asked ten times, of two devices: the profile has looked meanwhile, too."""
SHORT = "import ctypes, time; ctypes.CDLL('libcuda.so.1'); time.sleep(0.9)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    build(folder, NVML, "-shared", "-fPIC", name="nvidia-ml").rename(folder / "libnvidia-ml.so.1")
    build(folder, "", "-shared", "-fPIC", name="cuda").rename(folder / "libcuda.so.1")
    return folder


def profiled(folder: Path, program: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The command's process, and the text."""
    file = folder / "profile.json"
    words = [sys.executable, "-m", "necropsy", "profile", "--interval", "0.05", "--json", str(file), "--"]
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_GPU": str(folder / "used"), **environment}
    done = subprocess.run(
        [*words, sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    own: dict[str, Any] = json.loads(file.read_bytes())["processes"][0]
    return own, done.stderr


def test_each_process_has_what_all_devices_hold_for_it(folder: Path) -> None:
    own, text = profiled(folder, PROGRAM)
    assert own["peaks"]["gpu"] == 600 << 20, "two devices"
    assert {one["gpu"] for one in own["memory"]} >= {600 << 20, 400 << 20}
    assert "600 MiB on GPUs" in text


def test_a_library_that_crashes_costs_its_numbers_only(folder: Path) -> None:
    own, text = profiled(folder, SHORT, FAKE_GPU_CRASHES="1")
    assert own["peaks"]["gpu"] is None
    assert own["exit"]["code"] == 0
    assert own["memory"]
    assert "GPU" not in text


def test_a_program_without_cuda_does_not_load_it(folder: Path) -> None:
    own, _ = profiled(folder, SHORT.replace("ctypes.CDLL('libcuda.so.1')", "ctypes"))
    assert own["peaks"]["gpu"] is None
