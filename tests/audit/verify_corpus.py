"""Compiles the annotated ops and runs each as its comments say; by hand, for it takes minutes.

    python tests/audit/verify_corpus.py [--corpus FOLDER] [--build FOLDER] [NAME...]

needs g++ and TensorFlow. An op whose outcome differs from what its comments promise is printed, and the exit code is 1.
A bad op must end as it says; a correct one is built with AddressSanitizer and must answer every call with its value or a
proper error. What the comments mean is in corpus_marks.py.
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus_marks import CORPUS, AnnotatedOp, ops

_HEADERS = """
#define EIGEN_USE_THREADS
#include <algorithm>
#include <functional>
#include <string>
#include <vector>
#include "tensorflow/core/framework/bounds_check.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/util/work_sharder.h"
#include "unsupported/Eigen/CXX11/Tensor"
"""
_OPTIONS = ["-fPIC", "-O1", "-g1", "-w", "-fno-optimize-sibling-calls", "-DEIGEN_MPL2_ONLY"]
_SANITIZERS = [
    "-fsanitize=address,bounds,signed-integer-overflow",
    "-fno-sanitize-recover=bounds,signed-integer-overflow",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="the folder with bad/ and good/")
    parser.add_argument("--build", type=Path, default=Path(tempfile.gettempdir()) / "corpus_build")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only files whose name has one of these in it")
    arguments = parser.parse_args()
    corpus = ops(arguments.corpus.resolve())
    chosen = [op for op in corpus if not arguments.names or any(name in str(op.path) for name in arguments.names)]
    builder = _Builder(arguments.build)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        built = list(pool.map(builder.build, chosen))
    outcomes: dict[str, list[str]] = {}
    for sanitized in (False, True):
        alike = [op for op, good in zip(chosen, built, strict=True) if good and _sanitized(op) == sanitized]
        outcomes |= _run([op for op in alike if "graph" not in op.fields], builder)
        for op in alike:
            if "graph" in op.fields:
                outcomes |= _run([op], builder, "--here")
    failures = 0
    for op, good in zip(chosen, built, strict=True):
        said = outcomes.get(str(op.path), ["not run"]) if good else ["does not compile"]
        right = _as_annotated(op, said)
        failures += not right
        print(f"{'ok  ' if right else 'FAIL'} {op.path.parent.name}/{op.path.name}: {'; '.join(said)}")
    print(f"{len(chosen)} ops, {failures} not as annotated")
    return 1 if failures else 0


def _sanitized(op: AnnotatedOp) -> bool:
    return not op.bad or op.fields.get("dies") == "asan" or op.fields.get("build") == "asan"


def _as_annotated(op: AnnotatedOp, said: Iterable[str]) -> bool:
    said = list(said)
    match op.ending:
        case "":
            return all(each.startswith("ok") for each in said)
        case "dies":
            return op.fields["dies"] in said
        case "advice":
            return all(each.startswith("ok") for each in said)
        case ending:
            return any(each.startswith(ending) for each in said)


class _Builder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = "import json, tensorflow as tf; print(json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))"
        said = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
        self.compile_flags, self.link_flags = json.loads(said.splitlines()[-1])
        for sanitized in (False, True):
            self._precompile(sanitized)

    def library(self, op: AnnotatedOp) -> Path:
        return self.folder / f"{op.path.parent.name}_{op.path.stem}.so"

    def build(self, op: AnnotatedOp) -> bool:
        library = self.library(op)
        newest = max(path.stat().st_mtime for path in (op.path, *op.headers))
        if library.exists() and library.stat().st_mtime > newest:
            return True
        command = [
            *("nice", "g++", *self._flags(_sanitized(op)), "-include", str(self._header(_sanitized(op)))),
            *("-shared", str(op.path), "-o", str(library), *self.link_flags),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print("\n".join(line for line in done.stderr.splitlines() if "error" in line)[:2000])
        return not done.returncode

    def _flags(self, sanitized: bool) -> list[str]:
        return [*self.compile_flags, *_OPTIONS, *(_SANITIZERS if sanitized else [])]

    def _header(self, sanitized: bool) -> Path:
        return (
            self.folder
            / ("sanitized" if sanitized else "plain")
            / f"tensorflow_{zlib.crc32((_HEADERS + str(self._flags(sanitized))).encode()):08x}.h"
        )

    def _precompile(self, sanitized: bool) -> None:
        header = self._header(sanitized)
        result = header.with_suffix(".h.gch")
        if result.exists():
            return
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(_HEADERS, encoding="utf-8")
        subprocess.run(["nice", "g++", *self._flags(sanitized), str(header), "-o", str(result)], check=True)


def _run(chosen: list[AnnotatedOp], builder: _Builder, *options: str) -> dict[str, list[str]]:
    """What each op did, by its path: run_corpus.py forks for each, after one import of TensorFlow."""
    if not chosen:
        return {}
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", TF_ENABLE_ONEDNN_OPTS="0")
    if _sanitized(chosen[0]):
        asan = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
        environment["LD_PRELOAD"] = f"{asan.strip()} {ctypes.util.find_library('stdc++')}"
        environment["ASAN_OPTIONS"] = (
            "detect_leaks=0:exitcode=77:allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1"
        )
        environment["UBSAN_OPTIONS"] = "exitcode=77"
    listed = json.dumps([[str(op.path), str(builder.library(op))] for op in chosen])
    runner = Path(__file__).with_name("run_corpus.py")
    done = subprocess.run(
        [sys.executable, str(runner), *options],
        input=listed,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        check=False,
    )
    outcomes: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("["):
            path, said = json.loads(line)
            outcomes[path] = said
    if done.returncode:  # only with --here, where there is one op
        died = signal.Signals(-done.returncode).name if done.returncode < 0 else "asan"
        outcomes[str(chosen[-1].path)] = [died]
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
