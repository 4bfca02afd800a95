"""Generate the corpus that measures the grouping: run every bug from three callers in five builds, and keep the evidence.

    python tests/triage/corpus/generate.py [--work DIR] [--only PREFIX] [--no-tensorflow]

Needs g++ and gdb. If clang++ or TensorFlow is missing, its part is left out with a message. Takes about 20 minutes on two
cores. Each combination of bug, caller and build dies once, as a live capture, a kept report, a core, a gdb text or a
faulthandler log. ``deaths.jsonl.xz`` holds one reduced document per line, with the bug and the kind of evidence.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from necropsy import api
from necropsy.model import Document, Report
from necropsy.triage.documents import ReportDocument

HERE = Path(__file__).parent
KEPT = HERE / "deaths.jsonl.xz"
KINDS = ("live", "core", "capsule", "gdb", "faulthandler")
CALLERS = {"step": "train", "task": "serve", "batch": "evaluate"}
BUILDS = {
    "O0": ("g++", "-O0", "-g"),
    "O2": ("g++", "-O2", "-g"),
    "O3": ("g++", "-O3"),
    "stripped": ("g++", "-O2", "-g"),
    "clang": ("clang++", "-O2", "-g"),
}
OPS = ("ScoreRows", "TakeRow", "SkipRow", "BucketSum", "MergePairs", "GatherFar", "PadRows", "LookupRow")
EMPTY = frozenset({"ScoreRows", "BucketSum"})
"""Ops that die of an empty input."""
DEVELOPMENT = frozenset({"rows", *OPS[:4]})
FRAMES = 40
"""How many native frames of a death are kept."""


def main() -> None:
    """Build, run, reduce, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=Path("build/triage-corpus"))
    parser.add_argument("--only", default="")
    parser.add_argument("--no-tensorflow", action="store_true")
    options = parser.parse_args()
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    libraries = [name for name in ("rows", "graph") if name.startswith(options.only)]
    for library in libraries:
        rows += _of_library(library, work)
    if not options.no_tensorflow and "ops".startswith(options.only):
        rows += _of_ops(work)
    rows.sort(key=lambda row: (row["bug"], row["kind"], row["build"], row["caller"]))
    place = KEPT if not options.only else work / f"{options.only}.jsonl.xz"
    with lzma.open(place, "wt", encoding="utf-8", preset=9) as file:
        for row in rows:
            file.write(json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n")
    print(f"{len(rows)} deaths of {len({row['bug'] for row in rows})} bugs in {place}, {place.stat().st_size} bytes")


def _of_library(library: str, work: Path) -> list[dict[str, Any]]:
    built = _built(library, work, [])
    bugs = re.findall(r"^ROUTES\((\w+),", (HERE / f"{library}.cc").read_text(), re.MULTILINE)
    _write_modules(work, library, bugs)
    cases = []
    for number, bug in enumerate(bugs):
        for (at, caller), (place, build) in itertools.product(enumerate(CALLERS), enumerate(built)):
            kind = KINDS[(number + at + place) % len(KINDS)]
            cases.append(_case(work, (library, bug, caller, build, kind), n=3 + at % 2))
    return _run(cases, work, f"{library}-")


def _case(work: Path, what: tuple[str, str, str, str, str], n: int) -> dict[str, Any]:
    library, bug, caller, build, kind = what
    name = "-".join(what)
    return {
        "id": name,
        "kind": kind,
        "bug": bug,
        "caller": caller,
        "build": build,
        "library": str(work / build / f"{library}.so"),
        "module": f"{CALLERS[caller]}_{library}",
        "function": bug,
        "folder": str(work / "cases" / name),
        "n": n,
    }


def _built(library: str, work: Path, flags: list[str], builds: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    """The builds that this machine can make."""
    made = []
    for build, command in (builds or BUILDS).items():
        if shutil.which(command[0]) is None:
            print(f"no {command[0]}: its build is left out", file=sys.stderr)
            continue
        to = work / build / f"{library}.so"
        to.parent.mkdir(exist_ok=True)
        made.append(build)
        if to.exists() and to.stat().st_mtime > (HERE / f"{library}.cc").stat().st_mtime:
            continue
        if build == "stripped":
            shutil.copy(work / "O2" / f"{library}.so", to)
            subprocess.run(["strip", to], check=True)
        else:
            source = HERE / f"{library}.cc"
            common: list[str | Path] = [
                "-std=c++17",
                "-shared",
                "-fPIC",
                "-Wl,--build-id",
                source,
                "-o",
                to,
                "-lpthread",
            ]
            subprocess.run([*command, *common, *flags], check=True, cwd=work)
    return made


def _write_modules(work: Path, library: str, bugs: list[str]) -> None:
    """Python callers: three modules with a function for each bug. Every fourth bug is called through one wrapper."""
    (work / "calling.py").write_text(
        "import ctypes\nimport os\n\n\ndef library():\n    return ctypes.CDLL(os.environ['CORPUS_LIBRARY'])\n\n\n"
        "def call(name, n):\n    return getattr(library(), name)(n)\n"
    )
    for caller, module in CALLERS.items():
        lines = ["import calling", ""]
        for number, bug in enumerate(bugs):
            wrapped = number % 4 == 3
            lines += ["", f"def {bug}(n):"]
            if wrapped:
                lines += [f'    return calling.call("{bug}_{caller}", n)', ""]
            else:
                lines += ["    library = calling.library()", f"    return library.{bug}_{caller}(n)", ""]
        (work / f"{module}_{library}.py").write_text("\n".join(lines))


def _of_ops(work: Path) -> list[dict[str, Any]]:
    """As live capture, kept report and log only: a core of TensorFlow has a gigabyte."""
    asked = "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags())"
    flags = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    if flags.returncode:
        print("no TensorFlow: its ops are left out", file=sys.stderr)
        return []
    builds = {build: BUILDS[build] for build in ("O0", "O2", "stripped")}
    built = _built("ops", work, ["-w", *flags.stdout.split()], builds)
    names = {op: re.sub(r"(?<!^)(?=[A-Z])", "_", op).lower() for op in OPS}
    calls = {
        "step": "    return ops().{name}(x({size}))",
        "task": "    return tf.function(lambda value: ops().{name}(value) + 1)(x({size}))",
        "batch": "    return list(tf.data.Dataset.from_tensors(x({size})).map(lambda value: ops().{name}(value) * 2))",
    }
    for caller, module in CALLERS.items():
        lines = [
            "import os", "", "import tensorflow as tf", "", "", "def ops():",
            "    return tf.load_op_library(os.environ['CORPUS_LIBRARY'])", "", "", "def x(size):", "    return tf.zeros([size])",
        ]  # fmt: skip
        for op, name in names.items():
            lines += ["", "", f"def {op}(n):", calls[caller].format(name=name, size="0" if op in EMPTY else "n")]
        (work / f"{module}_ops.py").write_text("\n".join(lines) + "\n")
    cases = []
    kinds = ("live", "capsule", "faulthandler")
    for number, op in enumerate(OPS):
        for (at, caller), (place, build) in itertools.product(enumerate(CALLERS), enumerate(built)):
            cases.append(_case(work, ("ops", op, caller, build, kinds[(number + at + place) % 3]), n=3))
    return _run(cases, work, "ops-")


def _run(cases: list[dict[str, Any]], work: Path, prefix: str) -> list[dict[str, Any]]:
    rows = []
    for kind in KINDS:
        some = [case for case in cases if case["kind"] == kind]
        if some:
            rows += _kept(kind, some, work, work / f"{prefix}{kind}")
            print(f"{prefix}{kind}: {len(some)} cases, {len(rows)} rows", file=sys.stderr, flush=True)
    return rows


def _kept(kind: str, cases: list[dict[str, Any]], work: Path, place: Path) -> list[dict[str, Any]]:
    """A run that was broken off goes on with the next kind."""
    done = place.with_suffix(".rows.json")
    if not done.exists():
        done.write_text(json.dumps(list(_of_kind(kind, cases, work, place))))
    return list(json.loads(done.read_text()))


def _of_kind(kind: str, cases: list[dict[str, Any]], work: Path, place: Path) -> Iterator[dict[str, Any]]:
    listed, pids = place.with_suffix(".cases.json"), place.with_suffix(".pids.json")
    listed.write_text(json.dumps(cases))
    command: list[str | Path] = [sys.executable, HERE / "die_each_way.py", listed, pids]
    environment = {**os.environ, "CORPUS_CALLERS": str(work), "TF_CPP_MIN_LOG_LEVEL": "2"}
    if kind in {"live", "capsule"}:
        reports = place.with_suffix(".reports")
        shutil.rmtree(reports, ignore_errors=True)
        environment["NECROPSY_OUTPUT"] = str(reports)
        document = place.with_suffix(".json")
        run = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", document, "--", *command]
        with place.with_suffix(".stderr.txt").open("wb") as said:
            subprocess.run(run, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=said)
        read = (
            api.open_dump(next(reports.rglob("*.necropsy"))) if kind == "capsule" else api.loads(document.read_bytes())
        )
        known = json.loads(pids.read_text())
        by_pid = {report.pid: report for report in read.reports}
        for case in cases:
            report = by_pid.get(known[case["id"]][0])
            if report is not None and not _hung(report):
                yield _row(case, msgspec.structs.replace(read, reports=(report,)))
        return
    subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for case in cases:
        seen = _read(kind, Path(case["folder"]))
        if seen is not None and seen.reports and not _hung(seen.reports[0]):
            yield _row(case, seen)
        shutil.rmtree(case["folder"], ignore_errors=True)


def _read(kind: str, folder: Path) -> Document | None:
    if kind == "faulthandler":
        return api.diagnose(folder / "stderr.txt")
    cores = sorted(folder.glob("core*"))
    if not cores:
        return None
    if kind == "core":
        return api.open_dump(cores[0])
    text = folder / "gdb.txt"
    said = (folder / "stderr.txt").read_text(errors="replace")
    shown = subprocess.run(
        ["gdb", "-q", "-batch", "-ex", "bt 200", sys.executable, cores[0]], capture_output=True, text=True, check=False
    )
    text.write_text(said + shown.stdout)
    return api.diagnose(text)


def _hung(report: Report) -> bool:
    """A compiler has made a loop of the recursion: it ran until the time limit."""
    return report.crash.exit is not None and report.crash.exit.signal in {"SIGALRM", "SIGKILL"}


def _row(case: dict[str, Any], document: Document) -> dict[str, Any]:
    narrow = msgspec.json.decode(api.dumps(document), type=ReportDocument)
    part = "development" if {case["module"].partition("_")[2], case["bug"]} & DEVELOPMENT else "held out"
    shared = {name: case[name] for name in ("bug", "kind", "build", "caller")}
    return {**shared, "part": part, "document": reduced(msgspec.to_builtins(narrow))}


def reduced(document: dict[str, Any]) -> Any:
    """The document without what grouping does not look at: other threads, far frames, modules without frames, the name
    of the machine, the time, paths."""
    for report in document["reports"]:
        crash = report["crash"]
        threads = crash["threads"] or ()
        kept = [thread for thread in threads if thread["crashed"]] or list(threads[:1])
        for thread in kept:
            thread["frames"] = (thread["frames"] or ())[:FRAMES]
            thread["python"] = (thread["python"] or ())[:8]
        crash["threads"] = kept
        named = {frame["module"] for thread in kept for frame in thread["frames"]}
        crash["modules"] = [one for one in crash["modules"] or () if one["path"].rsplit("/", 1)[-1] in named]
        crash["environment"] = crash["at"] = None
    document["host"] = None
    document["id"] = "d"
    document["subject"] = {"kind": document["subject"]["kind"]}
    return _plain(document)


def _plain(value: Any) -> Any:
    """Without what is empty; paths of the machine that made the corpus, replaced."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if one not in (None, [], (), {}, "", False, 0)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return re.sub(r"/(?:[\w.+-]+/)+(?=[\w.+-]+\.(?:cc|h|py|so)\b)", _folder, value)
    return value


def _folder(match: re.Match[str]) -> str:
    """The system's and packages' folders tell whose a file is; others are the user's."""
    told = re.search(r"/(?:site-packages|lib/python3\.\d+|include/c\+\+|lib/x86_64-linux-gnu|lib)/.*", match[0])
    return "/usr" + told[0] if told else "/home/user/project/"


if __name__ == "__main__":
    main()
