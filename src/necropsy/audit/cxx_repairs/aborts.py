"""What ends the process, or an error that comes too late: CHECK, exceptions, wrong types, OP_REQUIRES in lambdas."""

from __future__ import annotations

import re

from necropsy.audit.cxx.conditions import arguments_of, callee, statement_of
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx_repairs.callers import callers
from necropsy.audit.cxx_repairs.context import Passing
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, literal, uses
from necropsy.model import CodeDefect

_COMPARED = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_ENUMS = {
    "float": "DT_FLOAT", "double": "DT_DOUBLE", "int32": "DT_INT32", "int64": "DT_INT64", "int64_t": "DT_INT64",
    "uint8": "DT_UINT8", "int8": "DT_INT8", "int16": "DT_INT16", "uint16": "DT_UINT16", "uint32": "DT_UINT32",
    "uint64": "DT_UINT64", "bool": "DT_BOOL", "tstring": "DT_STRING", "string": "DT_STRING", "half": "DT_HALF",
    "Eigen::half": "DT_HALF", "bfloat16": "DT_BFLOAT16", "complex64": "DT_COMPLEX64", "complex128": "DT_COMPLEX128",
}  # fmt: skip


def check(site: Site, defect: CodeDefect) -> Repair:
    """``CHECK_EQ(a, b) << ...;`` -> ``OP_REQUIRES(context, a == b, ...);``"""
    call, statement = site.enclosing("call_expression"), site.enclosing("expression_statement")
    if call is None or statement is None:
        raise NoRepairError("not a statement of its own")
    name, given = callee(site.file, call), [site.original(one) for one in arguments_of(call)]
    if name[-3:-2] == "_" and name[-2:] in _COMPARED and len(given) > 1:
        condition = f"{given[0]} {_COMPARED[name[-2:]]} {given[1]}"
    elif given and (name == "assert" or name.endswith("CHECK")):
        condition = (
            given[0]
            if name != "assert" or not re.search(r'&&\s*"', given[0])
            else given[0].partition('&& "')[0].strip()
        )
    else:
        raise NoRepairError(f"{name} has another form")
    message = literal(f"{condition} does not hold")
    passing = Passing(site)
    edits = [site.replace(statement, passing.requires(condition, message)), *passing.edits()]
    return Repair(
        tuple(edits), f"returns an error where `{condition}` does not hold, instead of {defect.names['macro']}"
    )


def exception(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """The statement of the kernel below which it is thrown is put into a ``try``."""
    edits: list[Edit] = []
    for one in _in_kernels(site.look, site, 0):
        statement = one.statement
        if statement.type != "expression_statement":
            raise NoRepairError("not a statement of its own")
        if one.context is None or not one.is_void:
            raise NoRepairError("no context")
        indent = one.indent(one.insert(statement.start_byte, "").start)
        error = f"{one.errors}InvalidArgument(error.what())"
        caught = one.requires("false", "error.what()") if one.done else f"{one.context}->CtxFailure({error});"
        leave = [] if one.done else [f"{indent}  return;"]
        lines = ["try {", f"{indent}  {one.original(statement)}", f"{indent}}} catch (const std::exception& error) {{"]
        edits.append(one.replace(statement, one.eol.join([*lines, f"{indent}  {caught}", *leave, f"{indent}}}"])))
        edits += included(one, "exception")
    if not edits:
        raise NoRepairError("no kernel calls it")
    return Repair(tuple(dict.fromkeys(edits)), "catches the exception in the kernel and returns an error")


def _in_kernels(look: Look, site: Site, depth: int) -> list[Site]:
    if site.context is not None:
        return [site]
    if depth > 4 or site.function.is_lambda:
        raise NoRepairError("no kernel is found")
    calls = callers(look, site.function)
    return [each for call in calls for each in _in_kernels(look, Site(look, call.caller, call.node), depth + 1)]


def wrong_type(site: Site, defect: CodeDefect) -> Repair:
    """The declared type where the kernel can never read another; else an error for the others."""
    call = site.enclosing("call_expression")
    while call is not None and not re.search(r"<[^<>]*>\s*\(\s*\)$", site.text(call)):
        call = call.parent if call.parent is not None and call.parent.type != "compound_statement" else None
    if call is None:
        raise NoRepairError("no access is seen")
    match = re.match(r"(?s)(.*?)(\.|->)\s*(\w+)\s*<\s*([^<>]*?)\s*(?:,[^<>]*)?>\s*\(\s*\)$", site.text(call))
    if match is None:
        raise NoRepairError("another form of access")
    declared = defect.names["declared"]
    if defect.case == "never" and declared in _ENUMS:
        start = call.start_byte + match.start(4)
        written = {"int64": "int64_t", "string": "tstring", "half": "Eigen::half"}.get(declared, declared)
        name = (
            written
            if written in {"float", "double", "bool", "int64_t", "Eigen::half"}
            else f"{site.tensorflow}{written}"
        )
        return Repair((site.exchange(start, start + len(match[4]), name),), f"reads the declared type {declared}")
    plain = match[4].rpartition("tensorflow::")[2]
    if plain not in _ENUMS:
        raise NoRepairError("an unknown type")
    tensor, dot = match[1].strip(), match[2]
    condition = f"{tensor}{dot}dtype() == {site.tensorflow}{_ENUMS[plain]}"
    line = site.requires(condition, literal(f"{tensor} must be {plain}"))
    return Repair(tuple(site.before(site.statement, [line])), f"returns an error unless `{tensor}` is {plain}")


def in_lambda(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """The function around the lambda asks for the status behind the statement that runs it."""
    lambda_, outer = site.function, site.function.outer
    if not lambda_.is_lambda or outer is None:
        raise NoRepairError("no lambda")
    around = Site(site.look, outer, lambda_.node)
    if around.context is None or not around.is_void or around.done is not None:
        raise NoRepairError("no context")
    held = lambda_.node.parent
    used = lambda_.node
    if held is not None and held.type in {"init_declarator", "assignment_expression"}:
        last = [node for node in uses(around, lambda_.name) if node.start_byte >= lambda_.node.end_byte]
        if not last:
            raise NoRepairError("nothing uses it")
        used = last[-1]
    statement = statement_of(used)
    line = f"if (!{around.context}->status().ok()) return;"
    return Repair((around.after(statement, [line]),), "leaves the kernel where the lambda has reported an error")


def _called_twice(site: Site, done: str) -> Repair:
    """``done(); break;`` in a loop with another ``done();`` behind it -> ``done(); return;``"""
    edits = []
    for node in walk(site.function.body, into_scopes=False):
        follows = node.next_named_sibling
        is_call = node.type == "expression_statement" and site.text(node).replace(" ", "") == f"{done}();"
        if is_call and follows is not None and follows.type == "break_statement":
            edits.append(site.replace(follows, "return;"))
    if len(edits) != 1:
        raise NoRepairError("which call is wrong is not obvious")
    return Repair(tuple(edits), f"returns where `{done}` was called")


def done_not_called(site: Site, defect: CodeDefect) -> Repair:
    """``OP_REQUIRES`` -> ``OP_REQUIRES_ASYNC``, and ``done();`` before ``return;``."""
    if defect.case == "twice":
        return _called_twice(site, defect.names["done"])
    done = site.done or (defect.names["done"] if site.function.is_lambda and defect.case == "return" else None)
    if done is None:
        raise NoRepairError("done is not in scope")
    call = site.enclosing("call_expression")
    name = callee(site.file, call) if call is not None else ""
    if call is not None and name in {"OP_REQUIRES", "OP_REQUIRES_OK"}:
        given = arguments_of(call)
        edits = (
            site.exchange(call.start_byte, call.start_byte + len(name), f"{name}_ASYNC"),
            site.insert(given[-1].end_byte, f", {done}"),
        )
        return Repair(edits, f"uses {name}_ASYNC, which calls `{done}`")
    statement = site.enclosing("return_statement")
    if statement is None or statement.named_children:
        raise NoRepairError("no return")
    return Repair(tuple(site.before(statement, [f"{done}();"])), f"calls `{done}` before it returns")
