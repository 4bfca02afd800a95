"""Views of temporaries: a string that lives as long as they are used."""

from __future__ import annotations

import re

from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx_repairs.edits import Repair
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect

_VIEW = re.compile(r"\b(?:(?:absl|std)::)?string_view\b|\b(?:tensorflow::)?StringPiece\b")
_TEXT = re.compile(r"const\s+char\s*\*")


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
