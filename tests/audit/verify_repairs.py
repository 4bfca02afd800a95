"""Repairs the bad annotated ops, compiles the results and calls them; by hand, for it takes minutes.

    python tests/audit/verify_repairs.py [--build FOLDER] [NAME...]

needs g++ and TensorFlow. Each bad op is copied, ``necropsy check --fix`` repairs the copy, and the copy is built with
AddressSanitizer. It is repaired if nothing is left to report, it compiles, the input that killed it gives an error or a
result, and valid input gives what it gave before: those calls of its correct twin that the bad op answers as the twin does.
Prints a line for each, and the share.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import verify_corpus
from corpus_marks import CORPUS, AnnotatedOp, annotated, ops


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path(tempfile.gettempdir()) / "repairs_build")
    parser.add_argument(
        "--before", type=Path, default=Path(tempfile.gettempdir()) / "corpus_build", help="as they were"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only files whose name has one of these in it")
    arguments = parser.parse_args()
    chosen = [op for op in ops() if op.bad and op.marks and not all(mark.note for mark in op.marks)]
    chosen = [op for op in chosen if not arguments.names or any(name in op.path.name for name in arguments.names)]
    copies = {op.path.name: _copied(op, arguments.build / "repaired") for op in chosen}
    said = {name: _fixed(copy) for name, copy in copies.items()}
    before = _Originals(arguments.before, arguments.build / "before" / "bad")
    valid = before.answered([op for op in chosen if not said[op.path.name]])
    runs = {
        op.path.name: _to_call(op, copies[op.path.name].path, valid[op.path.name])
        for op in chosen
        if not said[op.path.name]
    }
    builder = verify_corpus._Builder(arguments.build)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        built = dict(zip(runs, pool.map(builder.build, runs.values()), strict=True))
    ready = [op for name, op in runs.items() if built[name]]
    outcomes = verify_corpus._run([op for op in ready if "graph" not in op.fields], builder)
    for op in ready:
        if "graph" in op.fields:
            outcomes |= verify_corpus._run([op], builder, "--here")
    repaired = 0
    for op in chosen:
        name = op.path.name
        why = said[name] or _judged(outcomes.get(str(copies[name].path)), good=built[name])
        repaired += not why
        print(f"{'ok  ' if not why else 'FAIL'} {name}: {why or 'repaired'}", flush=True)
    print(f"{repaired} of {len(chosen)} bad ops repaired ({100 * repaired / max(len(chosen), 1):.0f} %)")
    return 0 if repaired >= 0.8 * len(chosen) else 1


def _copied(op: AnnotatedOp, folder: Path) -> AnnotatedOp:
    own = folder / op.path.stem
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    for path in (op.path, *op.headers):
        shutil.copy(path, own)
    return annotated(own / op.path.name)


def _fixed(op: AnnotatedOp) -> str:
    """Why it is not repaired; empty where nothing is left."""
    command = [sys.executable, "-m", "necropsy", "check", "--fix", "--format", "github", str(op.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    left = [line for line in done.stdout.splitlines() if line.startswith(("::error", "::warning"))]
    if left:
        return f"left: {left[0][:160]}"
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[-200:]}"
    return "" if done.stderr.strip() else "nothing found"


class _Originals(verify_corpus._Builder):
    """The bad ops as they are, and which calls of their twins they answer as these do."""

    def __init__(self, folder: Path, place: Path) -> None:
        super().__init__(folder)
        self.place = place
        self.of: dict[Path, AnnotatedOp] = {}

    def library(self, op: AnnotatedOp) -> Path:
        return super().library(self.of.get(op.path, op))

    def answered(self, chosen: list[AnnotatedOp]) -> dict[str, list[str]]:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        alone: dict[Path, str] = {}
        for op in chosen:
            for number, line in enumerate(_twin_calls(op) if self.build(op) else ()):
                path = self.place / f"{op.path.stem}_{number}.cc"
                path.write_text(f"{line}\n", encoding="utf-8")
                self.of[path], alone[path] = op, line
        outcomes: dict[str, list[str]] = {}
        for sanitized in (False, True):
            alike = [path for path in alone if verify_corpus._sanitized(self.of[path]) == sanitized]
            outcomes |= verify_corpus._run([dataclasses.replace(self.of[path], path=path) for path in alike], self)
        found: dict[str, list[str]] = {op.path.name: [] for op in chosen}
        for path, line in alone.items():
            if outcomes.get(str(path)) == ["ok"]:
                found[self.of[path].path.name].append(line)
        return found


def _twin_calls(op: AnnotatedOp) -> list[str]:
    """Calls with valid input."""
    twin, names = CORPUS / "good" / op.path.name, {call.op for call in op.calls}
    if not twin.is_file() or len(names) != 1 or {"threads", "repeats", "graph"} & set(op.fields):
        return []
    return [line for line in _calls(twin) if line.split()[2] in names and not re.search(r"=> (?:any|error)$", line)]


def _to_call(op: AnnotatedOp, copy: Path, valid: list[str]) -> AnnotatedOp:
    """The copy with comments as of a correct op: what killed it may give an error or a result; then valid input."""
    lines = copy.read_text(encoding="utf-8").splitlines(keepends=True)
    calls = [re.sub(r"=> error$", "=> any", line) for line in _calls(op.path)]
    if op.ending == "wrong" and not {"threads", "repeats"} & set(op.fields):
        calls = [re.sub(r"=> .*$", "=> any", line) for line in calls]
    kept = [f"// {name}: {value}" for name, value in op.fields.items() if name in {"graph", "threads", "repeats"}]
    code = list(itertools.dropwhile(lambda line: line.startswith("//"), lines))
    copy.write_text("\n".join([*calls, *valid, *kept, ""]) + "".join(code), encoding="utf-8")
    return annotated(copy)


def _calls(path: Path) -> list[str]:
    heads = itertools.takewhile(lambda line: line.startswith("//"), path.read_text(encoding="utf-8").splitlines())
    return [line.strip() for line in heads if line.startswith("// call:")]


def _judged(said: list[str] | None, *, good: bool) -> str:
    if not good:
        return "does not compile"
    if said is None:
        return "not run"
    return "" if all(each.startswith("ok") for each in said) else "; ".join(said)


if __name__ == "__main__":
    sys.exit(main())
