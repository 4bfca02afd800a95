"""Notes on registrations and calls: no shape function, one that says nothing, and parts of the API that are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import RegisteredOp, SourceFile
from necropsy.model import CodeDefect

_UNKNOWN = re.compile(r"(?:(?:::)?(?:tensorflow|tsl)\s*::\s*)?shape_inference\s*::\s*UnknownShape\s*$")
_LEGACY = (
    ("ref", re.compile(r"\bRef\s*\(\s*\w+\s*\)"), "resource variables"),
    ("persistent", re.compile(r"\b(?:PersistentTensor|allocate_persistent)\b"), "a Tensor member and allocate_temp"),
    ("status", re.compile(r"\bStatus\s*::\s*OK\s*\(\s*\)"), "absl::OkStatus()"),
    (
        "string",
        re.compile(r"\b(?:flat|vec|matrix|scalar|unaligned_flat|flat_inner_dims)\s*<\s*(?:std\s*::\s*)?string\s*>"),
        "tstring",
    ),
)


def look(one: Look) -> Iterator[CodeDefect]:
    """Notes: at most one of each kind for an op, and one of each part of the API for a file."""
    for op in one.unit.ops:
        if op.outputs and op.shape_function is None:
            yield _of_op(one, op, "op-no-shape-function", "none")
        elif op.shape_function is not None:
            case = _weak(op.shape_function, len(op.outputs))
            if case:
                yield _of_op(one, op, "op-shape-function-weak", case)
    for file in one.unit.files:
        yield from _legacy(one, file)


def _of_op(one: Look, op: RegisteredOp, rule: str, case: str) -> CodeDefect:
    return one.defect(
        rule,
        case,
        op.place,
        "registration",
        names={"op": op.name, "outputs": ", ".join(each.name for each in op.outputs)},
        severity="note",
        confidence="certain",
    )


def _weak(text: str, outputs: int) -> str:
    """``unknown``: it says of every output that its shape is unknown; ``nothing``: it sets no output."""
    if _UNKNOWN.match(text):
        return "unknown"
    if not text.startswith("[") or not outputs:
        return ""
    if re.search(r"UnknownShape\s*\(\s*\w+\s*\)", text) and "set_output" not in text:
        return "unknown"
    set_ = re.findall(r"set_output\s*\(\s*[^,]+,\s*(.*?)\)\s*;", text, re.DOTALL)
    if set_ and all(re.match(r"\w+\s*->\s*UnknownShape\s*\(", each) for each in set_):
        return "unknown"
    own = re.fullmatch(
        r"\[\s*\]\s*\([^)]*\)\s*(?:->\s*[\w:]+\s*)?\{\s*return\s+(?:[\w:]*OkStatus\(\)|[\w:]*Status::OK\(\))\s*;\s*\}",
        text.strip(),
    )
    return "nothing" if own is not None else ""


def _legacy(one: Look, file: SourceFile) -> Iterator[CodeDefect]:
    text = file.text.decode("latin-1")
    for case, pattern, instead in _LEGACY:
        found = list(pattern.finditer(text))
        if case == "ref":
            found = [each for each in found if _is_registered(text, each.start())]
        if not found:
            continue
        yield one.defect(
            "op-legacy-api",
            case,
            file.place_of(found[0].start(), found[0].end()),
            "call",
            names={
                "what": " ".join(found[0][0].split()),
                "instead": instead,
                "op": _op_at(one, file, found[0].start()),
            },
            numbers={"places": len(found)},
            severity="note",
            confidence="certain",
        )


def _is_registered(text: str, at: int) -> bool:
    """Within ``.Input("...")`` or ``.Output("...")``."""
    return (
        re.search(r"\.\s*(?:Input|Output)\s*\(\s*(?:\"[^\"]*\"\s*)*\"[^\"]*$", text[max(0, at - 200) : at]) is not None
    )


def _op_at(one: Look, file: SourceFile, at: int) -> str:
    offset = file.source_offset(at)
    return next((op.name for op in one.unit.ops if op.file is file and op.place.start <= offset < op.place.end), "")
