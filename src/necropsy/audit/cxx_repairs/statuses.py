"""A Status that is thrown away: ``OP_REQUIRES_OK`` around the call, or ``TF_RETURN_IF_ERROR`` in a helper."""

from __future__ import annotations

from necropsy.audit.cxx_repairs.edits import Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect


def ignored(site: Site, defect: CodeDefect) -> Repair:
    """The function returns with the error."""
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
