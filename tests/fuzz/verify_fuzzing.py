"""Fuzzes the annotated ops of tests/audit/corpus, bad and good, and prints what was found; by hand, for it takes hours.

    python tests/fuzz/verify_fuzzing.py [--bad SECONDS] [--good SECONDS] [--build FOLDER] [--source] [NAME...]

needs g++ and TensorFlow. A bad op whose comments say that it dies by a signal should have a finding, and a good op none.
Each test that a finding wrote is run on the correct twin as well, where it must pass. The exit code is 1 if a good op has
a finding, or if a test dies on a twin.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "audit"))

from corpus_marks import AnnotatedOp, ops

from necropsy.confirm.compiler import Builder
from necropsy.errors import NecropsyError

FLAGS = ("-O2", "-g1", "-DEIGEN_MPL2_ONLY")
# Most of the time that an op takes to compile goes into these headers, so they are compiled once for all ops.
HEADERS = "common_shape_fns.h", "op.h", "op_kernel.h"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bad", type=float, default=30.0, help="seconds for each bad op")
    parser.add_argument("--good", type=float, default=60.0, help="seconds for each good op")
    parser.add_argument("--build", type=Path, default=Path(tempfile.gettempdir()) / "fuzzed_corpus")
    parser.add_argument("--source", action="store_true", help="with a campaign on the build with AddressSanitizer")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only files whose name has one of these in it")
    arguments = parser.parse_args()
    chosen = [op for op in ops() if not arguments.names or any(name in str(op.path) for name in arguments.names)]
    wrong = found = dying = 0
    for op in chosen:
        budget = arguments.bad if op.bad else arguments.good
        library = built(op.path, arguments.build)
        if library is None or not budget:
            print(f"{op.path.parent.name}/{op.path.name}: not built", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            document = fuzzed(library, budget, Path(folder), op.path if arguments.source else None)
            told = ["no document"] if document is None else list(rows(document))
            failed = failing_on_twin(op, document, arguments.build, Path(folder)) if document is not None else []
        findings = document["fuzz"]["findings"] if document is not None else []
        dying += op.ending == "dies"
        found += op.ending == "dies" and bool(findings)
        wrong += (bool(findings) and not op.bad) or bool(failed)
        ending = f"{op.ending} {op.fields.get('dies', '')}".strip() or "correct"
        print(f"{op.path.parent.name}/{op.path.stem} ({ending}): {'; '.join(told)}", flush=True)
        for test in failed:
            print(f"    dies on the twin: {test}", flush=True)
    print(f"found: {found} of {dying} ops that die; {wrong} wrong")
    return 1 if wrong else 0


def built(source: Path, place: Path) -> Path | None:
    flags = [*FLAGS]
    if "#define EIGEN_" not in source.read_text(encoding="utf-8"):  # which has to come before the headers
        flags += ["-include", str(precompiled_headers(place))]
    # A folder for each op: a builder deletes its older builds.
    folder = place / source.parent.name / source.stem
    # A copy of one builder: it asks TensorFlow for its flags once for all ops.
    builder = dataclasses.replace(any_builder(), source=source, library=Path(f"{source.stem}.so"), place=folder)
    try:
        return builder.build(flags)
    except NecropsyError as error:
        print(error, file=sys.stderr)
        return None


@functools.cache
def any_builder() -> Builder:
    return Builder(Path(), Path(), sys.executable, Path())


@functools.cache
def precompiled_headers(place: Path) -> Path:
    """A header whose precompiled form lies beside it, where the compiler looks for it."""
    header = place / "op_headers.h"
    if not header.with_suffix(".h.gch").exists():
        import tensorflow as tf

        place.mkdir(parents=True, exist_ok=True)
        header.write_text("".join(f'#include "tensorflow/core/framework/{name}"\n' for name in HEADERS))
        options = ["-std=c++17", *FLAGS, "-fPIC", "-w", *tf.sysconfig.get_compile_flags(), "-x", "c++-header"]
        unfinished = header.with_suffix(".h.gch.part")
        subprocess.run([os.environ.get("CXX", "g++"), *options, str(header), "-o", str(unfinished)], check=True)
        unfinished.replace(header.with_suffix(".h.gch"))
    return header


def fuzzed(library: Path, budget: float, folder: Path, source: Path | None) -> dict[str, Any] | None:
    words = ["necropsy", "fuzz", "--budget", str(budget), "--json", "found.json", str(library)]
    words += ["--source", str(source)] if source is not None else []
    subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, check=False)
    file = folder / "found.json"
    document: dict[str, Any] | None = json.loads(file.read_bytes()) if file.exists() else None
    return document


def rows(document: dict[str, Any]) -> list[str]:
    told = [
        f"{one['name']} {one['executions']} calls, {one['accepted']} accepted, {one['deaths']} died, {one['slow']} slow"
        for one in document["fuzz"]["targets"]
    ]
    told += [
        f"{one['rule']} at call {one['first']['execution']}, {one['elements']} elements, "
        f"{one['reproduced']['crashed']} of {one['reproduced']['runs']}, needs {', '.join(one['needs']) or 'nothing'}"
        for one in document["fuzz"]["findings"]
    ]
    return [*told, *(f"{one['rule']}: {one['reason']}" for one in document["not_tried"])] + [
        f"gap: {one['part']}: {one['why'][:160]}" for one in document["gaps"]
    ]


def failing_on_twin(op: AnnotatedOp, document: dict[str, Any], place: Path, folder: Path) -> list[str]:
    """The tests that do not pass on the correct op of the same name."""
    twin = op.path.parent.parent / "good" / op.path.name
    tests = [one["test"] for one in document["fuzz"]["findings"]]
    if not op.bad or not twin.is_file() or not tests:
        return []
    library = built(twin, place)
    if library is None:
        return []
    variables = {**os.environ, "NECROPSY_FUZZ_LIBRARY": str(library), "NECROPSY_FUZZ_SOURCE": str(twin)}
    failed = []
    for test in tests:
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, check=False)
        failed += [test] if done.returncode else []
    return failed


if __name__ == "__main__":
    sys.exit(main())
