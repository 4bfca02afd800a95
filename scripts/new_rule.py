"""Write the skeleton of a new rule: ``python scripts/new_rule.py NAME [--kind crash|env|op|data]``.

The kind is taken from the name where it begins with ``env-``, ``op-`` or ``data-``. What is to be written is marked
FILL IN; ``tests/rules/test_skeletons.py`` fails until no such mark is left. CONTRIBUTING.md describes the steps.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from string import Template
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("crash", "env", "op", "data")
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+|abort|hang")

PAGE = '''\
"""FILL IN: what is wrong, in one sentence.

What happened
-------------
FILL IN: what the program or the machine did, for a reader who has never seen this.

How to be sure
--------------
FILL IN: what proves it: the line, the function on the stack, the command that shows it.

How to fix it now
-----------------
FILL IN: what to change, with something to type or to write in ``double backquotes``.

How to prevent it
-----------------
FILL IN: what keeps it from coming back.

What it is often mistaken for
-----------------------------
FILL IN: the nearest other cause, and how the two are told apart. Its example is ``miss``, below.

Sources
-------
- FILL IN: https://
"""

from __future__ import annotations

'''


class Kind(NamedTuple):
    """What the skeletons of one kind have of their own."""

    match: str
    fields: str


RULE = """\
RULE = Rule(
    _match,
$fields
)
"""
"""The end of a skeleton; ``fields`` are those that rules of one kind have."""


CRASH = Kind(
    match="""\
from necropsy.model import Crash, Fix
from necropsy.predicates import says
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules.culprit import culprit_of
from necropsy.rules.python import exit_evidence


def _match(crash: Crash) -> Finding | None:
    # FILL IN: ask necropsy.predicates; `says` asks for the id of a phrase in src/necropsy/data/phrases.toml.
    seen = says(crash, "$name", claim="its last words")
    if not seen:
        return None
    return Finding(
        evidence=seen + exit_evidence(crash),
        summary="FILL IN: what happened here, in one sentence, with the names and numbers that were seen.",
        confidence="likely",
        culprit=culprit_of(crash),
        fixes=(Fix(text="FILL IN: the first thing to do."),),
    )
""",
    fields='''\
    beats=("killed-by-signal", "exit-status-only"),  # FILL IN: the rules that say less about the same crash
    tried=Tried(
        advice="FILL IN: the first piece of advice, word for word.",
        result="crash gone",
        how="FILL IN: what was changed on a real crash, and what came of it.",
    ),
    # FILL IN: two sketches; tests/sketch.py has their words.
    hit="""
        exit 1
    """,
    miss="""
        exit 1
    """,''',
)

ENVIRONMENT = Kind(
    match="""\
from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import Finding, Rule


def _match(environment: Environment) -> Finding | None:
    # FILL IN: look at the parts of the environment that `needs` names.
    variables = environment.variables or {}
    if "FILL_IN" not in variables:
        return None
    return Finding(
        evidence=(Evidence(claim="FILL_IN", seen=variables["FILL_IN"], where="the environment"),),
        summary="FILL IN: what is wrong here, in one sentence, with the names and numbers that were seen.",
        confidence="certain",
        fixes=(Fix(text="FILL IN: the first thing to do."),),
    )
""",
    fields='''\
    severity="warning",
    needs=("variables",),  # FILL IN
    checks="FILL IN: what it looks at, in two or three words",
    # FILL IN: two sketches; tests/environment_sketch.py has their words.
    hit="""
        python 3.11.7
    """,
    miss="""
        python 3.11.7
    """,''',
)

OP = Kind(
    match="""\
from necropsy.model import CodeDefect, Environment, Fix
from necropsy.rule import Finding, Rule, several
from necropsy.rules.defects import defects, found, of_op, place


def _match(environment: Environment) -> Finding | None:
    # FILL IN: the check in necropsy.audit that reports such defects (docs/explanation/check-sources.md).
    return several(map(_finding, defects(environment, "$name")))


def _finding(one: CodeDefect) -> Finding:
    return found(
        one,
        summary=f"{place(one)}: `{one.function}`{of_op(one)} FILL IN: what it does, and what comes of it.",
        fixes=(Fix(text="FILL IN: the first thing to do."),),
    )
""",
    fields='''\
    severity="warning",
    needs=("code",),
    checks="FILL IN: what it looks at, in two or three words",
    # FILL IN: two sketches; tests/environment_sketch.py has their words.
    hit="""
        defect op-kernel-state member FooOp::Compute member=calls_ type=int
    """,
    miss="""
        defect op-kernel-state member FooOp::Compute member=calls_ type=int
    """,''',
)

DATA = Kind(
    match="""\
from necropsy.model import Evidence, Fix, Part
from necropsy.rule import Finding, Rule
from necropsy.rules.elements import name_of, starting


def _match(part: Part) -> Finding | None:
    # FILL IN: `part.column` is one array of the elements; without one, the question is about the dataset as a whole.
    column = part.column
    if column is None or column.dtype != "FILL IN":
        return None
    return Finding(
        evidence=(Evidence(claim="type", seen=column.dtype, where=column.path or None),),
        summary=f"{starting(name_of(column))} FILL IN: what is wrong with it, with the numbers that were seen.",
        confidence="certain",
        fixes=(Fix(text="FILL IN: the first thing to do."),),
    )
""",
    fields='''\
    # FILL IN: two bodies of a generator; tests/walked.py says what they may use.
    hit="""
        for i in range(40):
            yield {"x": np.full(3, i, np.float32)}
    """,
    miss="""
        for i in range(40):
            yield {"x": np.full(3, i, np.float32)}
    """,''',
)

CODE = {"crash": CRASH, "env": ENVIRONMENT, "op": OP, "data": DATA}
CASE = """\
# FILL IN: a crash as it was really captured, as tests/sketch.py describes it, then what is expected of the report.
exit 1
verdict $name likely
"""


def kind_of(name: str) -> str:
    """What a rule of this name judges, as far as the name says."""
    prefix = name.partition("-")[0]
    return prefix if prefix in KINDS else "crash"


def _code(name: str, kind: Kind) -> str:
    end = Template(RULE).substitute(name="$name", fields=kind.fields)
    return PAGE + Template(f"{kind.match}\n\n{end}").substitute(name=name)


def skeleton(name: str, kind: str) -> dict[str, str]:
    """The files of a new rule, by their paths in the repository."""
    files = {f"src/necropsy/rules/{kind}/{name.replace('-', '_')}.py": _code(name, CODE[kind])}
    if kind == "crash":
        case = Template(CASE).substitute(name=name)
        files |= {f"tests/cases/{name}/{which}.txt": case for which in ("first", "second")}
    return files


def problem_with(name: str, kind: str) -> str | None:
    """Why no rule of this name can be written; None where it can."""
    if not NAME.fullmatch(name):
        return f"{name}: a rule's name is two or more words of lower case and digits, joined by dashes"
    if kind != "crash" and not name.startswith(f"{kind}-"):
        return f"{name}: a rule of this kind is called {kind}-{name}"
    there = [path for path in skeleton(name, kind) if (ROOT / path).exists()]
    return f"{there[0]} exists already" if there else None


def main() -> int:
    """Write the files; 2 where the name will not do."""
    parser = argparse.ArgumentParser(description="Write the skeleton of a new rule.")
    parser.add_argument("name", metavar="NAME", help="what the rule finds: lost-connection, env-disk-slow")
    parser.add_argument("--kind", choices=KINDS, help="what it judges; without it, the beginning of NAME decides")
    chosen = parser.parse_args()
    kind = chosen.kind or kind_of(chosen.name)
    problem = problem_with(chosen.name, kind)
    if problem is not None:
        print(f"new_rule: {problem}", file=sys.stderr)
        return 2
    for path, text in skeleton(chosen.name, kind).items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")
        print(f"written: {path}")
    print("Write what is marked FILL IN, then run: make docs; pytest tests/rules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
