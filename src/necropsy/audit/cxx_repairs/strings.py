"""Text in buffers that are too small or already freed: calls that know the size, and a string instead of a view."""

from __future__ import annotations

import re

from necropsy.audit.cxx.conditions import arguments_of, callee
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect

_SIZED = {"sprintf": "snprintf", "vsprintf": "vsnprintf"}
_VIEW = re.compile(r"\b(?:(?:absl|std)::)?string_view\b|\b(?:tensorflow::)?StringPiece\b")


def overflow(site: Site, defect: CodeDefect) -> Repair:
    """All such calls with this buffer; what does not fit is cut off."""
    buffer, edits = defect.names["buffer"], list[Edit]()
    for node in walk(site.function.body, into_scopes=False):
        given = arguments_of(node) if node.type == "call_expression" else []
        called = node.child_by_field_name("function")
        if len(given) < 2 or called is None or site.text(given[0]).strip() != buffer:
            continue
        name = callee(site.file, node)
        if name in _SIZED:
            edits.append(site.exchange(called.end_byte - len(name), called.end_byte, _SIZED[name]))
            edits.append(site.insert(given[0].end_byte, f", sizeof({buffer})"))
        elif name == "strcpy":
            edits.append(site.exchange(called.end_byte - len(name), called.end_byte, "snprintf"))
            edits.append(site.insert(given[0].end_byte, f', sizeof({buffer}), "%s"'))
        elif name == "strcat":
            edits.append(site.exchange(called.end_byte - len(name), called.end_byte, "strncat"))
            edits.append(site.insert(given[1].end_byte, f", sizeof({buffer}) - strlen({buffer}) - 1"))
    if not edits:
        raise NoRepairError("no call is seen")
    return Repair(
        (*edits, *included(site, "cstdio", "cstring")), f"writes at most sizeof({buffer}) bytes to `{buffer}`"
    )


def view(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """``const absl::string_view v = Made();`` -> ``const std::string v = Made();``"""
    statement = site.enclosing("declaration")
    local = next((each for each in locals_of(site.function) if each.statement == statement), None)
    if statement is None or local is None or local.value is None or local.value.type != "call_expression":
        raise NoRepairError("not the value of a variable")
    type_ = statement.child_by_field_name("type")
    if type_ is not None and _VIEW.fullmatch(site.text(type_)) and not local.type.is_indirect:
        edits = (site.replace(type_, "std::string"), *included(site, "string"))
        return Repair(edits, f"declares `{local.name}` as a std::string")
    raise NoRepairError("not a view of a string")
