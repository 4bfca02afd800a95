"""What every check is given: the unit, its calls, the stack's size; and how it reports what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from necropsy.audit.cxx.calls import CallGraph
from necropsy.audit.cxx.model import Function, Kernel, Place, Unit
from necropsy.audit.cxx.origins import Origins
from necropsy.model import CodeDefect, CodePlace


@dataclass
class Look:
    """One unit as a check sees it."""

    unit: Unit
    stack: int
    """The size in bytes of the stack that has to suffice."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    bindings: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    """Of functions by ``id``: what their template parameters are."""
    undecided: int = 0
    """How many accesses could neither be proved nor refuted."""

    @cached_property
    def calls(self) -> CallGraph:
        """Who calls whom."""
        return CallGraph(self.unit)

    @cached_property
    def origins(self) -> Origins:
        """What the caller of an op decides."""
        return Origins(self.unit, self.calls)

    @contextmanager
    def of(self, function: Function) -> Iterator[None]:
        """Around what a check does with one function: an error costs only this function, and becomes a gap."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the other functions are still looked at
            where = f"{function.qualified} at {function.place.path}:{function.place.line}"
            self.failed.append((where, f"not analysed, an internal error: {type(error).__name__}: {error}"))

    def place(self, place: Place, role: str) -> CodePlace:
        """A place as it goes into a document."""
        file = next(one for one in self.unit.files if one.path == place.path)
        return CodePlace(
            path=place.path,
            line=place.line,
            column=place.column,
            end_line=place.end_line,
            text=file.line_text(place.line)[:200],
            role=role,
        )

    def defect(
        self,
        rule: str,
        case: str,
        place: Place,
        role: str,
        *,
        function: Function | None = None,
        kernel: Kernel | None = None,
        **told: Any,
    ) -> CodeDefect:
        """A defect at ``place``; ``told`` are fields of ``CodeDefect``.

        Its function gives the kernel and the op, where ``kernel`` does not.
        """
        kernel = kernel or (self.calls.kernel_of(function) if function is not None else None)
        return CodeDefect(
            rule=rule,
            case=case,
            place=self.place(place, role),
            function=told.pop("name", None) or (shown(function) if function is not None else None),
            kernel=kernel.class_name if kernel is not None else None,
            op=kernel.op_name if kernel is not None else None,
            is_in_macro=place.macro is not None,
            **told,
        )


def shown(function: Function) -> str:
    """``FooOp::Compute``, without namespaces; of a lambda, with the function that it is in."""
    if function.is_lambda:
        around = f" in {shown(function.outer)}" if function.outer is not None else ""
        return f"{function.name or 'lambda'}{around}"
    cls = function.class_name.rpartition("::")[2] if function.class_name is not None else ""
    return f"{cls}::{function.name}" if cls else function.name


def where(place: Place) -> str:
    """``path:line``"""
    return f"{place.path}:{place.line}"
