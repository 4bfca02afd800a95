"""Rebuild or check ``src/necropsy/data/tensorflow_advisories.json`` from a checkout of TensorFlow's sources.

    git clone --depth 1 https://github.com/tensorflow/tensorflow
    python scripts/rebuild_advisories.py tensorflow            write the table
    python scripts/rebuild_advisories.py tensorflow --check    exit with 1 where it differs

Read are ``tensorflow/security/advisory/tfsa-*.md`` and, to tell the names of ops from other words, the file names in
``tensorflow/core/ops/compat/ops_history_v2``. Only facts are taken, no prose: number, CVE, names of ops and functions,
kinds of fault, and the versions that have the fix. An advisory that names no op keeps its row; no crash matches it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.parent / "src" / "necropsy" / "data" / "tensorflow_advisories.json"
SOURCE = "https://github.com/tensorflow/tensorflow/tree/master/tensorflow/security/advisory"

KINDS = {
    "null": r"null[- ]?(?:pointer|deref|exception)|nullptr|\bNPE\b|to null\b",
    "check": r"`?CHECK(?:_\w+)?`?[- ]?fail|`CHECK|assertion fail|assert(?:ion)? fail",
    "division": r"division by (?:0|zero)|divide[- ]by[- ]zero|\bFPE\b|floating point exception",
    "read": r"(?:out[- ]of[- ]bounds?|OOB|out-of-buffer) (?:memory )?read|arbitrary memory read|read outside",
    "write": r"(?:out[- ]of[- ]bounds?|OOB) (?:memory )?write|memory corruption|write outside|write to immutable",
    "bounds": r"heap[- ](?:buffer[- ])?overflow|buffer overflow|heap (?:OOB|out[- ]of[- ]b)|out[- ]of[- ]bounds? access"
    r"|\bOOB\b|outside (?:of )?(?:the )?bounds",
    "use-after-free": r"use[- ]after[- ]free",
    "double-free": r"double free",
    "segfault": r"seg(?:mentation)?[ -]?fault|invalid memory|SIGSEGV",
    "abort": r"std::abort|\babort|bad[_ ]alloc|`?std::length_error|vector that is too large",
    "memory": r"out of memory|\bOOM\b|bad[_ ]alloc",
    "stack-overflow": r"stack overflow",
    "uninitialized": r"un-?init?ialized",
    "hang": r"deadlock|infinite loop",
    "overflow": r"(?<!heap )(?<!buffer )(?<!stack )(?<!-)\boverflow",
    "crash": r"\bcrash",
}
"""Kind of fault to the words that name it. ``bounds`` leaves open whether memory is read or written. ``overflow`` is a
number's; it may end in a failed check or in memory that is not there. It and ``crash`` count where no kind is told."""

_VAGUE = ("overflow", "crash")
_OP = re.compile(r"(?<![\w:./])(?:tf\.raw_ops\.)?([A-Z][A-Za-z0-9]*[A-Za-z0-9*])(?![\w(/:])")
_RAW = re.compile(r"raw_ops\.([A-Z]\w+)")
_API = re.compile(r"(?<![\w.])tf((?:\.[a-z_]\w*)+\*?)")
_CALL = re.compile(r"^(?:\w+ = |print\()?tf(?!\.random)((?:\.[a-z_]\w*)+)\(", re.MULTILINE)
_VERSION = re.compile(r"(?<![\w./-])([12]\.\d+(?:\.\d+)?)(?![\w/-]|\.\d)")
_FUNCTION = re.compile(r"`((?:\w+::)*[A-Za-z_]\w+)`")
_NO_FUNCTIONS = frozenset({"CHECK", "CHECK_EQ", "nullptr", "NaN", "false", "true", "Exit", "Enter", "StatusOr"})
_NO_API = frozenset(
    {"tf.raw_ops", "tf.constant", "tf.function", "tf.random", "tf.Variable", "tf.dtypes", "tf.io", "tf.compat.v1"}
)


def ops_in(text: str, known: dict[str, str]) -> list[str]:
    """The ops that ``text`` names, as registered; ``Conv3DBackprop*`` is each op that begins so."""
    text = re.sub(r"\{(\w*),(\w*)\}(\w+)", r"\1\3` `\2\3", text)  # {Experimental,}DatasetToTFRecord
    found: list[str] = []
    for word in _OP.findall(text):
        if "*" in word:
            found += [op for op in known.values() if fnmatchcase(op, word)]
        elif len(word) > 1:
            name = known.get(word.lower()) or known.get(word.lower().removesuffix("op"))
            # A word of prose that begins a sentence is no op: two capitals or a code span tell them apart.
            if name is not None and (f"`{word}`" in text or re.search(r"[a-z0-9][A-Z]|[A-Z]{2}", word)):
                found.append(name)
    # `max_pool3d` is what the wrapper of MaxPool3D is called.
    found += [known[name] for word in re.findall(r"`([a-z]+_\w+)`", text) if (name := word.replace("_", "")) in known]
    return list(dict.fromkeys(found))


def read(path: Path, known: dict[str, str]) -> dict[str, Any]:
    """One advisory as a row: id, cve, kinds, ops, apis, functions, lite, since and fixed; what is empty is left out."""
    text = path.read_text(encoding="utf-8")
    title = text.splitlines()[0].partition(": ")[2]
    impact = re.split(r"^### ", text, flags=re.MULTILINE)
    parts = {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in impact}
    told = next((body for name, body in parts.items() if name.startswith("Impact")), "")
    patches = next((body for name, body in parts.items() if name.startswith(("Patch", "Mitigation"))), "")
    vulnerable = next((body for name, body in parts.items() if name.startswith("Vulnerable")), "")
    prose = re.sub(r"```.*?```", " ", told, flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    snippet = " ".join(re.findall(r"```python(.*?)```", told, flags=re.DOTALL))
    kinds = kinds_of(title)
    if set(kinds) <= {"segfault", *_VAGUE}:
        kinds = list(dict.fromkeys([*kinds, *kinds_of(prose)]))
    kinds = [kind for kind in kinds if kind not in _VAGUE] or kinds
    ops = ops_in(title, known)
    if not ops:
        # Up to three ops are the ones that die; of more, some only make the others' inputs.
        # Some proofs of concept call another op than the text is about.
        raw = _RAW.findall(prose) or _RAW.findall(snippet)
        some = list(dict.fromkeys(known.get(name.lower(), name) for name in raw))
        ops = some if len(some) <= 3 else []
    apis = [f"tf{name}" for name in _API.findall(title)]
    if not ops and not apis:
        used = dict.fromkeys(f"tf{name}" for name in _API.findall(prose))
        apis = [name for name in used if name not in _NO_API][:3]
    if not ops and not apis:
        # The proof of concept mostly ends with the call that dies.
        apis = [f"tf{name}" for name in _CALL.findall(snippet)][-1:]
    functions = [
        name
        for name in dict.fromkeys(_FUNCTION.findall(title))
        if name.split("::")[-1] not in _NO_FUNCTIONS and not ops_in(f"`{name}`", known) and re.search(r"[A-Z]", name)
    ]
    row: dict[str, Any] = {
        "id": path.stem.upper(),
        "cve": next(iter(re.findall(r"CVE-\d{4}-\d{4,}", parts.get("CVE Number", ""))), None),
        "kinds": kinds,
        "ops": ops,
        "apis": [] if ops else [name for name in apis if not name.startswith("tf.raw_ops")],
        "functions": functions,
        "lite": bool(re.search(r"TFLite|TF Lite", title)) or None,
        "since": next(iter(versions_in(vulnerable)), None),
        "fixed": fixed_in(patches),
    }
    return {name: value for name, value in row.items() if value}


def kinds_of(text: str) -> list[str]:
    """The kinds of fault that ``text`` names."""
    return [
        kind for kind, words in KINDS.items() if re.search(words, text, flags=re.IGNORECASE if kind != "memory" else 0)
    ]


def fixed_in(text: str) -> list[str]:
    """The versions that have the fix, lowest first; ``2.11`` is 2.11.0."""
    plain = re.sub(r"between\s+[\d.]+\s+and\s+[\d.]+\d", " ", text)
    return versions_in(plain)


def versions_in(text: str) -> list[str]:
    """The versions of TensorFlow that ``text`` names, lowest first."""
    plain = re.sub(r"\]\([^)]*\)|https?://\S+|\[[0-9a-f]{12,}\]", " ", text)
    found = {tuple([*(int(part) for part in one.split(".")), 0][:3]) for one in _VERSION.findall(plain)}
    return [".".join(map(str, one)) for one in sorted(found)]


def rebuild(checkout: Path) -> str:
    """The table's text."""
    history = checkout / "tensorflow" / "core" / "ops" / "compat" / "ops_history_v2"
    known = {path.stem.lower(): path.stem for path in sorted(history.glob("*.pbtxt"))}
    rows = [read(path, known) for path in sorted((checkout / "tensorflow/security/advisory").glob("tfsa-*.md"))]
    if not known or not rows:
        raise SystemExit(f"{checkout}: no advisories or no ops; is it a checkout of TensorFlow?")
    lines = ",\n".join(" " + json.dumps(row, separators=(", ", ": ")) for row in rows)
    return f'{{"source": {json.dumps(SOURCE)},\n"advisories": [\n{lines}\n]}}\n'


def main() -> int:
    """Write or check the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder with TensorFlow's sources")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the table differs")
    arguments = parser.parse_args()
    text = rebuild(arguments.checkout)
    if arguments.check:
        same = TABLE.read_text(encoding="utf-8") == text
        print(f"{TABLE.name}: {'as its source says' if same else 'differs from its source'}")
        return 0 if same else 1
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
