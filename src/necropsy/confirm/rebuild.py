"""The op built again from its source: at each level of optimisation, and with the checks that compilers know.

The program itself is not touched: when it loads its library, another build is loaded in its place
(``preload/replace_library.c``). What the checks are: GCC's manual, "Program Instrumentation Options".
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.confirm.campaign import Lab, Result, Tally, outcome_of
from necropsy.errors import InputError, NecropsyError
from necropsy.model import Change, Crash, Experiment

LEVELS = ("-O0", "-O1", "-O2", "-O3")
CHECKED = ("-O1", "-g", "-fstack-protector-all", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-D_GLIBCXX_ASSERTIONS")
SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address")
_SECONDS = 300.0
_FAMILIES = (
    frozenset({"stack-overflow-recursion", "stack-overflow-large-frame", "stack-overflow-small-stack"}),
    frozenset({"stack-smash", "buffer-overflow-fortify"}),
    frozenset({"heap-corruption", "double-free", "heap-buffer-overflow", "use-after-free"}),
    frozenset({"null-dereference"}),
    frozenset({"integer-divide-by-zero"}),
)
# What damaged memory looks like from where it is noticed: any of these may be what a smashed stack or heap ends as.
_SYMPTOMS = frozenset({"invalid-read", "invalid-write", "bad-jump", "abort", "python-without-gil", "deliberate-trap"})


@dataclass(frozen=True)
class Builder:
    """Compiles ``source`` as the library ``library`` was: with TensorFlow's flags, if it is one of TensorFlow's ops.

    ``python`` is the interpreter of the program.
    """

    source: Path
    library: Path
    python: str
    place: Path
    extra: tuple[str, ...] = ()
    _flags: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def build(self, flags: Sequence[str]) -> Path:
        """The library, built with ``flags`` besides those that it needs.

        Raises:
            NecropsyError: there is no compiler, or it refuses the source.

        """
        compiler = shutil.which(os.environ.get("CXX", "g++") if self.source.suffix != ".c" else "gcc")
        if compiler is None:
            raise NecropsyError("there is no compiler here")
        out = self.place / f"{'_'.join(flags).replace('=', '').replace('-', '')}" / self.library.name
        out.parent.mkdir(parents=True, exist_ok=True)
        compile_flags, link_flags = self._framework()
        standard = ["-std=c++17"] if self.source.suffix != ".c" else []
        words = [compiler, *standard, *self.extra, *flags, "-shared", "-fPIC", "-w", *compile_flags]
        words += ["-o", str(out), str(self.source), *link_flags]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise NecropsyError(f"{self.source.name} did not compile in {_SECONDS:.0f} s") from error
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
            raise NecropsyError(f"{self.source.name} does not compile: {first.strip()}")
        return out

    def _framework(self) -> tuple[list[str], list[str]]:
        if "tensorflow/" not in self.source.read_text(encoding="utf-8", errors="replace"):
            return [], []
        if "tensorflow" not in self._flags:
            code = (
                "import json, tensorflow as tf;"
                "print(json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))"
            )
            done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=False)
            if done.returncode:
                raise NecropsyError(f"{self.python} cannot say with which flags TensorFlow's ops are built")
            compile_flags, link_flags = json.loads(done.stdout.splitlines()[-1])
            self._flags["tensorflow"] = compile_flags, link_flags
        return self._flags["tensorflow"]


@dataclass(frozen=True)
class Rebuild:
    """``--op-source``: the op of the crash, built in other ways."""

    rule: str
    builder: Builder
    shares: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return (
            f"{self.builder.library.name} built again from {self.builder.source.name}: {', '.join(LEVELS)}, with checks"
        )

    def conduct(self, lab: Lab) -> Result:
        """Each build, run until it is decided; the checked ones say who did it."""
        rows: list[Experiment] = []
        proofs: list[bool] = []
        # Those that say most come first, in case the budget ends.
        for flags in (SANITIZED, CHECKED, *((level,) for level in LEVELS)):
            row, rule = self._one(lab, flags)
            rows.append(row)
            if flags in {CHECKED, SANITIZED} and rule is not None and (proof := proof_of(self.rule, rule)) is not None:
                proofs.append(proof)
        # A check that fires says what happened first; the other one may only have seen the same as before.
        return Result(tuple(rows), {self.rule: True in proofs} if proofs else {})

    def _one(self, lab: Lab, flags: tuple[str, ...]) -> tuple[Experiment, str | None]:
        name = "op " + " ".join(flags)
        what = f"the op built with {' '.join(flags)}"
        try:
            change = self._change(self.builder.build(flags), flags)
        except NecropsyError as error:
            row = Experiment(
                name=name, change=what, predicts="-", runs=0, crashed=0, outcome=str(error), rule=self.rule
            )
            return row, None
        tally = lab.tally(name, change)
        last = lab.last if tally.outcomes else None
        rule = last.rule if last is not None and tally.crashed else None
        row = Experiment(
            name=name,
            change=what,
            predicts="a check says what is wrong, where there is one" if len(flags) > 1 else "it dies at every level",
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=_words(tally, rule, last.where if last is not None else None),
            rule=self.rule,
            means=_frame(last.measures.get("largest")) if last is not None and tally.crashed else None,
            conclusive=bool(tally.crashed) or (lab.is_known and len(tally.outcomes) >= lab.enough),
        )
        return row, rule

    def _change(self, built: Path, flags: tuple[str, ...]) -> Change:
        library = (str(self.builder.library), str(built))
        if flags != SANITIZED:
            return Change(library=library)
        runtime = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
        options = "detect_leaks=0:detect_odr_violation=0:abort_on_error=1:detect_stack_use_after_return=0"
        # The C++ library as well: the runtime looks at its start for what throws exceptions, and gives up without it.
        preload = (runtime.stdout.strip(), "libstdc++.so.6")
        return Change(library=library, preload=preload, environment={"ASAN_OPTIONS": options})


def _words(tally: Tally, rule: str | None, where: str | None) -> str:
    said = outcome_of(tally)
    if rule is None:
        return said
    return f"{said}, by {rule}" + (f", {where}" if where else "")


def _frame(octets: float | None) -> str | None:
    return f"its largest frame has {octets:,.0f} bytes" if octets else None


def proof_of(claimed: str, found: str) -> bool | None:
    """Whether what a check found is what the rule claims; None where it does not say."""
    if claimed == found:
        return True
    mine = next((family for family in _FAMILIES if claimed in family), None)
    other = next((family for family in _FAMILIES if found in family), None)
    if other is None:
        return None
    # A bad pointer is what damaged memory looks like from where it is used: the check says who damaged it.
    return mine is other or claimed in _SYMPTOMS


def builder(source: Path, crash: Crash, command: Sequence[str], place: Path) -> Builder:
    """How to build ``source`` again as the library that the crash was in, or that the command names.

    Raises:
        InputError: there is no such source, or no such library can be told.

    """
    if not source.is_file():
        raise InputError(f"--op-source {source}: there is no such file")
    named = [Path(word) for word in command if word.endswith(".so") and Path(word).is_file()]
    stem = source.stem.replace("_", "")
    mapped = [Path(one.path) for one in crash.modules or () if Path(one.path).stem.replace("_", "") == stem]
    found = next(iter([*named, *(path for path in mapped if path.is_file())]), None)
    if found is None:
        raise InputError(f"which library is built from {source.name}? It is neither in the command nor of that name")
    # As it was typed: what a link of a virtual environment leads to has none of its packages.
    python = command[0] if Path(command[0]).name.startswith("python") else None
    known = crash.environment.executable if crash.environment is not None else None
    return Builder(source.resolve(), found.resolve(), python or known or command[0], place)
