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
log E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered
log E0000 00:00:1795208908.409686    9695 cuda_blas.cc:1418] Unable to register cuBLAS factory: Attempting to register factory for plugin cuBLAS when one has already been registered
log I tensorflow/compiler/xla/stream_executor/cuda/cuda_gpu_executor.cc:996] successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node, so returning NUMA node zero.
log could not open file to read NUMA node: /sys/bus/pci/devices/0000:01:00.0/numa_node
log W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT
log I tensorflow/core/util/port.cc:113] oneDNN custom operations are on. You may see slightly different numerical results due to floating-point round-off errors from different computation orders.
log I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.
log To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.
log W tensorflow/tsl/framework/cpu_allocator_impl.cc:83] Allocation of 4000000000 exceeds 10% of free system memory.
log W tensorflow/tsl/framework/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.21GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.
log I tensorflow/compiler/mlir/mlir_graph_optimization_pass.cc:353] MLIR V1 optimization pass is not enabled
log I tensorflow/compiler/jit/xla_compilation_cache.cc:478] Compiled cluster using XLA!  This line is logged at most once for the lifetime of the process.
log E xla/stream_executor/cuda/cuda_timer.cc:86] Delay kernel timed out: measured time has sub-optimal accuracy.
log W tensorflow/core/common_runtime/gpu/gpu_device.cc:2433] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.
log qt.qpa.plugin: Could not find the Qt platform plugin "wayland" in ""
log E0811 17:42:11.123456 4711 fork_posix.cc:76] Other threads are currently calling into gRPC, skipping fork() handlers
log OpenBLAS Warning : Detect OpenMP Loop and this application may hang. Please rebuild the library with USE_OPENMP=1 option.
log UserWarning: h5py is running against HDF5 1.14.2 when it was built against 1.14.3, this may cause problems
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


def test_warnings_alone_are_no_death() -> None:
    healthy = parse("exit 0\n" + SURVIVED)
    assert diagnose(healthy.crash, crash_rules()).verdict is None
