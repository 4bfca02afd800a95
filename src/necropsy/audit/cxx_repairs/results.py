"""What an op returns: a Status that is ignored, and outputs that are only partly written."""

from __future__ import annotations

import re

from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx_repairs.edits import Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect


def unset(site: Site, defect: CodeDefect) -> Repair:
    """``auto y = output->flat<float>();`` -> and ``y.setZero();`` behind it."""
    if defect.case != "part":
        raise NoRepairError("what the output should be is not known")
    name = re.escape(defect.names["outputs"])
    for each in locals_of(site.function):
        value = site.text(each.value) if each.value is not None else ""
        if re.fullmatch(rf"(?s){name}\s*->\s*(?:flat|vec|matrix|tensor|scalar)\s*<(?!.*string).*>\s*\(\s*\)", value):
            return Repair(
                (site.after(each.statement, [f"{each.name}.setZero();"]),), f"sets `{each.name}` to zero first"
            )
    raise NoRepairError("no view of the output is seen")


def ignored(site: Site, defect: CodeDefect) -> Repair:
    """Return the error from the function."""
    if defect.case == "variable":
        statement = site.enclosing("declaration")
        if statement is None:
            raise NoRepairError("no declaration")
        text = _around(site, defect.names["variable"])
        return Repair((site.after(statement, [f"{text};"]),), f"returns where `{defect.names['variable']}` is an error")
    statement = site.enclosing("expression_statement")
    call = statement.named_children[0] if statement is not None and statement.named_children else None
    if call is None or call.type != "call_expression":
        raise NoRepairError("not a statement of its own")
    head, _, tail = _around(site, "\0").partition("\0")
    edits = (site.insert(call.start_byte, head), site.insert(call.end_byte, tail))
    return Repair(edits, f"returns where {defect.names['call']} gives an error")


def _around(site: Site, text: str) -> str:
    returns = site.function.returns
    if returns is not None and returns.last == "Status" and not returns.is_indirect:
        return f"TF_RETURN_IF_ERROR({text})"
    if site.context is None or not site.is_void:
        raise NoRepairError("no context")
    if site.done is not None:
        return f"OP_REQUIRES_OK_ASYNC({site.context}, {text}, {site.done})"
    return f"OP_REQUIRES_OK({site.context}, {text})"
