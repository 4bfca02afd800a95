"""A helper that has to report an error: the op's context becomes its last parameter, and its callers pass it on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.conditions import statement_of
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx_repairs.callers import callers
from necropsy.audit.cxx_repairs.edits import Edit
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site

_HEADER = "tensorflow/core/framework/op_kernel.h"
_MOST = 8
"""Functions that get a parameter for one repair."""


@dataclass
class Passing:
    """Changes needed to report an error; ``group``: a recursion's functions, which get a parameter ``depth`` too."""

    site: Site
    group: tuple[Function, ...] = ()
    _changed: list[Function] = field(default_factory=list)

    def requires(self, condition: str, message: str) -> str:
        """A statement that leaves the function with an error unless the condition holds."""
        site = self.site
        if site.context is not None and site.is_void:
            return site.requires(condition, message)
        name = self.context(site.function)
        leave = _leave(site.function)
        error = f"{site.errors}InvalidArgument({message})"
        inner = site.indent(site.insert(site.statement.start_byte, "").start)
        return site.eol.join(
            [f"if (!({condition})) {{", f"{inner}  {name}->SetStatus({error});", f"{inner}  {leave}", f"{inner}}}"]
        )

    def limits(self, excess: str, message: str) -> list[str]:
        """Lines at the beginning of a recursion: an error where ``excess``; behind an error, it goes no deeper."""
        name = self.context(self.site.function)
        error = f"{self.site.errors}InvalidArgument({message})"
        return [
            f"if ({excess}) {name}->SetStatus({error});",
            f"if (!{name}->status().ok()) {_leave(self.site.function)}",
        ]

    def context(self, function: Function) -> str:
        """The name of the context in a function; it gets one where it has none."""
        at: Function | None = function
        while at is not None:
            own = Site(self.site.look, at, at.body).context
            if own is not None:
                return own
            if not at.is_lambda:
                break
            if not re.match(r"\s*[&=]", at.captures):
                raise NoRepairError("a lambda that does not capture the context")
            at = at.outer
        if at is None:
            raise NoRepairError("no context")
        self._extend(at)
        return "context"

    def deepen(self, function: Function) -> None:
        """A function of the group gets its parameter."""
        self._extend(function)

    def _extend(self, function: Function) -> None:
        if function in self._changed:
            return
        if len(self._changed) >= _MOST:
            raise NoRepairError("too many functions would change")
        _may_change(self.site, function)
        self._changed.append(function)
        calls = callers(self.site.look, function)
        if not calls:
            raise NoRepairError("nothing that is known calls it")
        for call in calls:
            self.context(call.caller)

    def edits(self) -> list[Edit]:
        """The parameters, the arguments, and a look at the status behind each call in a kernel."""
        found: list[Edit] = []
        for function in self._changed:
            own = Site(self.site.look, function, function.body)
            new = [] if own.context is not None else [f"{own.tensorflow}OpKernelContext* context"]
            new += ["int depth = 0"] if function in self.group else []
            found.append(_appended(own, function, ", ".join(new)))
            if not any(b"OpKernel" in one.original for one in [function.file]):
                found += included(own, _HEADER)
            for call in callers(self.site.look, function):
                found += self._call(call, function)
        return list(dict.fromkeys(found))

    def _call(self, call: Call, to: Function) -> list[Edit]:
        caller = Site(self.site.look, call.caller, call.node)
        new = [] if Site(self.site.look, to, to.body).context is not None else [self.context(call.caller)]
        new += ["depth + 1"] if to in self.group and call.caller in self.group else []
        if not new:
            return []
        given = ", ".join(new)
        held = call.node.child_by_field_name("arguments")
        if held is None:
            raise NoRepairError("a call without brackets")
        edits = [caller.insert(held.end_byte - 1, f", {given}" if call.arguments else given)]
        if caller.context is not None and caller.is_void and caller.done is None:
            statement = statement_of(call.node)
            if statement.parent is not None and statement.parent.type == "compound_statement":
                edits.append(caller.after(statement, [f"if (!{caller.context}->status().ok()) return;"]))
        return edits


def _leave(function: Function) -> str:
    returns = function.returns
    if returns is None or function.is_constructor or function.is_lambda:
        if function.is_lambda and (returns is None or returns.last in {"void", "auto"}):
            return "return;"
        if not function.is_lambda:
            raise NoRepairError("it has no type of its result")
    if returns is None:
        raise NoRepairError("it has no type of its result")
    if returns.reference:
        raise NoRepairError("it returns a reference")
    if returns.last == "void" and not returns.pointers:
        return "return;"
    return "return {};"


def _may_change(site: Site, function: Function) -> None:
    """Raises if no parameter can be added because something else names the function."""
    if function.is_lambda or function.is_virtual or function.is_destructor or function.is_constructor:
        raise NoRepairError("its parameters cannot change")
    if any(one.is_pack or one.default is not None for one in function.parameters):
        raise NoRepairError("its parameters cannot change")
    if function.name.startswith("operator") and function.name != "operator()":
        raise NoRepairError("its parameters cannot change")
    if "override" in function.file.text[function.node.start_byte : function.body.start_byte].decode("latin-1").split():
        raise NoRepairError("it overrides another")
    if len([one for one in site.look.unit.named(function.name) if one.qualified == function.qualified]) > 1:
        raise NoRepairError("it has overloads")
    if function.name == "operator()":
        return
    calls = {(id(call.caller.file), call.node.start_byte, call.node.end_byte) for call in callers(site.look, function)}
    for file in site.look.unit.files:
        for node in walk(file.tree.root_node):
            if node.type not in {"identifier", "field_identifier"} or file.text_of(node) != function.name:
                continue
            if file is function.file and function.node.start_byte <= node.start_byte < function.body.start_byte:
                continue
            if not any(
                key == id(file) and start <= node.start_byte < end and _calls(file.text[start : node.start_byte])
                for key, start, end in calls
            ):
                raise NoRepairError("something else names it")


def _calls(before: bytes) -> bool:
    """The name precedes the call's argument list."""
    return before.count(b"(") == before.count(b")")


def _appended(site: Site, function: Function, text: str) -> Edit:
    declarator = next((one for one in walk(function.node) if one.type == "function_declarator"), None)
    held = declarator.child_by_field_name("parameters") if declarator is not None else None
    if held is None:
        raise NoRepairError("no parameters are seen")
    return site.insert(held.end_byte - 1, f", {text}" if function.parameters else text)
