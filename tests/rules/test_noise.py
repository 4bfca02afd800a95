"""What healthy programs write, too, changes no verdict: warnings of libraries that are missed and not needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy.diagnose import diagnose
from necropsy.rules import crash_rules
from sketch import parse

CASES = sorted((Path(__file__).parent.parent / "cases").glob("*/*.txt"))
SURVIVED = """\
log I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
log W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: no such object
log W tensorflow/core/common_runtime/gpu/gpu_device.cc:2251] Cannot dlopen some GPU libraries. Please make sure
log E xla/stream_executor/cuda/cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)
log W tsl/framework/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB (rounded to 1610612736)requested by op X
log OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily unavailable
log warning: libjemalloc.so.2: cannot allocate memory in static TLS block
log A module that was compiled using NumPy 1.x cannot be run in
"""
NOTHING_ELSE_KNOWN = {"exit-status-only"}
"""Where nothing but an exit code is known, a warning may be named as possible."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_warnings_that_programs_survive_change_no_verdict(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    own = parse(text)
    lines = text.splitlines()
    begin = next((index for index, line in enumerate(lines) if line.startswith("log ")), len(lines))
    noisy = parse("\n".join([*lines[:begin], SURVIVED, *lines[begin:]]))
    report = diagnose(noisy.crash, crash_rules())
    verdict = report.verdict
    if own.verdict in NOTHING_ELSE_KNOWN and verdict is not None and verdict.confidence == "possible":
        return
    assert (verdict.rule if verdict else "none") == own.verdict
