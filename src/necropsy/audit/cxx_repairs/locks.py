"""Writes that several threads make: a mutex around them."""

from __future__ import annotations

import re

from necropsy.audit.cxx.conditions import statement_of
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect

_MUTEX_HEADER = "tensorflow/core/platform/mutex.h"


def shared_write(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """A mutex in front of the call that starts the threads, and a lock around the write."""
    lambda_ = next((one for one in site.around if one.is_lambda), None)
    if lambda_ is None or lambda_.outer is None or not re.match(r"\s*&\s*(?:,|$)", lambda_.captures):
        raise NoRepairError("not in a lambda that captures by reference")
    outer = Site(site.look, lambda_.outer, lambda_.node)
    name = _free(outer, "write_mu")
    statement = site.statement
    edits = [
        *outer.before(statement_of(lambda_.node), [f"{site.tensorflow}mutex {name};"]),
        *site.before(statement, [f"{site.tensorflow}mutex_lock {name}_lock({name});"]),
        *included(site, _MUTEX_HEADER),
    ]
    return Repair(tuple(edits), f"locks `{name}` around the write")


def kernel_state(site: Site, defect: CodeDefect) -> Repair:
    """A mutex in the kernel, which ``Compute`` holds."""
    look = site.look
    kernel = next(
        (
            one
            for one in look.unit.kernels
            if one.class_name.rpartition("::")[2] == (defect.kernel or "").rpartition("::")[2]
        ),
        None,
    )
    cls, compute = (kernel.cls, kernel.compute) if kernel is not None else (None, None)
    if cls is None or compute is None or kernel is None or kernel.is_async or compute.class_name != cls.qualified:
        raise NoRepairError("no kernel is seen")
    name = "state_mu_"
    if any(name in (each.name) for each in cls.fields) or cls.file is not compute.file:
        raise NoRepairError("the name is taken")
    return Repair(
        (*_locked(Site(look, compute, compute.body), name), _member(site, compute, name)),
        f"Compute holds the new mutex `{name}`",
    )


def _locked(site: Site, name: str) -> list[Edit]:
    first = next((one for one in site.function.body.named_children if one.type != "comment"), None)
    if first is None:
        raise NoRepairError("it is empty")
    return [*site.before(first, [f"{site.tensorflow}mutex_lock state_lock({name});"]), *included(site, _MUTEX_HEADER)]


def _member(site: Site, compute: Function, name: str) -> Edit:
    cls = site.look.unit.classes[compute.class_name or ""][0]
    held = cls.node.child_by_field_name("body")
    if held is None:
        raise NoRepairError("no body")
    own = Site(site.look, compute, cls.node)
    indent = own.indent(own.insert(cls.node.start_byte, "").start)
    end = own.insert(held.end_byte - 1, "").start
    line = own.file.original.rfind(b"\n", 0, end) + 1
    text = f"{indent} private:{own.eol}{indent}  {own.tensorflow}mutex {name};{own.eol}"
    if own.file.original[line:end].strip():
        raise NoRepairError("the class ends on another line")
    return Edit(own.file.path, line, line, text.encode("latin-1"))


def _free(site: Site, name: str) -> str:
    if re.search(rf"\b{name}\b", site.text(site.function.body)):
        raise NoRepairError("the name is taken")
    return name
