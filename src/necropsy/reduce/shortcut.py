"""A pass that tries the calls on the stack of the death alone, with the values that they had.

Kept are the statements of these calls and what they need by name: where a variable is assigned, a function defined, a
module imported. It is a guess, tried before all else; where it dies of the same, most of the work is done in one trial.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from necropsy.reduce.deletion import suites
from necropsy.reduce.expressions import last_name
from necropsy.reduce.observed_values import Observe, with_all_values
from necropsy.reduce.program import Pass, Program, Steps
from necropsy.reduce.python_source import Edit, Source, source_of
from necropsy.reduce.statements import Place, parsed, without
from necropsy.reduce.unbound_names import bound_names
from necropsy.reduce.unwrapping import BLOCKS, content

Stack = Sequence[tuple[str, int]]
"""The path and line of each frame of the program's own, the innermost first."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_TYPES = frozenset({"argtypes", "restype", "errcheck"})


def calls_on_the_stack(observe: Observe, stack: Callable[[], Stack], *, is_cheap: bool) -> Pass:
    """The pass. ``stack``: of the run that ``observe`` made last. A candidate ``is_cheap`` if one run decides."""

    def steps(program: Program) -> Steps:
        literal = with_all_values(program, observe, stack)
        for is_bare, with_calls in ((True, False), (True, True), (False, True)) if is_cheap else ((True, True),):
            candidate = _sliced(program, literal, stack(), is_bare=is_bare, with_calls=with_calls)
            if candidate is not None and (yield candidate):
                return candidate
        return program

    return steps


def _sliced(program: Program, literal: Program, frames: Stack, *, is_bare: bool, with_calls: bool) -> Program | None:
    """``literal`` with the statements that the frames of ``program`` need; None where there are no frames.

    Of the functions on the stack it has what is in blocks without these, if it ``is_bare``.
    """
    lines, sources = parsed(program), parsed(literal)
    statements = [one for path, source in sources.items() for one in _Statement.of(path, source)]
    kept = _Slice(statements, is_bare=is_bare, with_calls=with_calls)
    for path, line in frames:
        if path not in lines or path not in sources:
            return None
        before, after = (
            [one for one in ast.walk(each[path].tree) if isinstance(one, ast.stmt)] for each in (lines, sources)
        )
        inside = [
            (one, other)
            for one, other in zip(before, after, strict=True)
            if one.lineno <= line <= (one.end_lineno or one.lineno)
        ]
        if inside:
            # The one that begins last is the smallest one.
            kept.keep_frame(max(inside, key=lambda pair: (pair[0].lineno, pair[0].col_offset))[1])
    if not kept.begins_in_a_module:
        return None  # a thread, which something else has to start
    kept.close()
    gone = [place for path, source in sources.items() for place in _gone(path, source, kept.nodes)]
    made = without(literal, sources, gone)
    return _without_unbound(_bare(made, kept.on_stack), kept.on_stack) if is_bare else made


def _bare(program: Program, functions: Collection[tuple[str, str]]) -> Program:
    """The modules and these functions without blocks."""
    for path in program.python_files:
        while True:
            source = source_of(program.files[path])
            statements = _Statement.of(path, source) if source is not None else []
            own = [one.node for one in statements if one.scope is None or (path, one.scope_name) in functions]
            edits = [content(source, node) for node in own] if source is not None else []
            edit = next((one for one in edits if one is not None), None)
            if source is None or edit is None:
                break
            program = program.with_file(path, source.edited([edit]))
    return program


def _without_unbound(program: Program, functions: Collection[tuple[str, str]]) -> Program:
    """``None`` for names such as those of loops that are gone: what is passed by them has other values by now."""
    edits: dict[str, bytes] = {}
    for path, source in parsed(program).items():
        known = {name for node in source.tree.body for name in _bound_here(node)} | set(dir(builtins))
        lost: list[ast.Name] = []
        for scope in (source.tree, *(one for one in ast.walk(source.tree) if isinstance(one, _FUNCTIONS))):
            if isinstance(scope, _FUNCTIONS) and (path, scope.name) not in functions:
                continue
            own = _bound(scope)
            inside = [one for node in scope.body if not isinstance(node, _SCOPES) for one in ast.walk(node)]
            names = [one for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
            lost += [one for one in names if one.id not in own | known]
        edits[path] = source.edited([Edit(source.start(one), source.end(one), b"None") for one in lost])
    return program.with_files(edits)


def _bound(node: ast.AST) -> set[str]:
    return {name for one in ast.walk(node) for name in bound_names(one)}


def _bound_here(node: ast.stmt) -> set[str]:
    """The names that a statement of a module binds there."""
    return {node.name} if isinstance(node, _SCOPES) else _bound(node)


def _gone(path: str, source: Source, kept: Collection[ast.stmt]) -> Iterator[Place]:
    for suite in suites(source):
        for node in suite.statements:
            if node not in kept:
                yield path, suite, node


@dataclass(frozen=True, eq=False)
class _Statement:
    """A statement, and the statements around it from the outermost on. ``scope``: its function or class."""

    path: str
    node: ast.stmt
    around: tuple[ast.stmt, ...]

    @classmethod
    def of(cls, path: str, source: Source) -> list[_Statement]:
        found: list[_Statement] = []
        waiting: list[tuple[ast.AST, tuple[ast.stmt, ...]]] = [(source.tree, ())]
        while waiting:
            node, around = waiting.pop()
            inside = around
            if isinstance(node, ast.stmt):
                found.append(cls(path, node, around))
                inside = (*around, node)
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
        return found

    @property
    def scope_name(self) -> str:
        return self.scope.name if isinstance(self.scope, _SCOPES) else ""

    @property
    def scope(self) -> ast.stmt | None:
        return next((one for one in reversed(self.around) if isinstance(one, _SCOPES)), None)


class _Slice:
    """The statements that are kept, and what they need."""

    def __init__(self, statements: Sequence[_Statement], *, is_bare: bool, with_calls: bool) -> None:
        self.nodes: set[ast.stmt] = set()
        self.on_stack: set[tuple[str, str]] = set()
        self.begins_in_a_module = False
        self._functions: set[ast.stmt] = set()
        self._whole: set[ast.stmt] = set()
        self._is_bare = is_bare
        self._of = {one.node: one for one in statements}
        self._with_calls = with_calls
        self._names: set[tuple[str, ast.stmt | None, str]] = set()
        self._attributes: set[str] = set()
        self._waiting: list[ast.stmt] = []

    def keep_frame(self, node: ast.stmt) -> None:
        self.keep(node)
        statement = self._of[node]
        self.begins_in_a_module = statement.scope is None
        if isinstance(statement.scope, _FUNCTIONS):
            self._functions.add(statement.scope)
            self.on_stack.add((statement.path, statement.scope_name))

    def keep(self, node: ast.stmt) -> None:
        for one in (*self._of[node].around, node):
            if one not in self.nodes:
                self.nodes.add(one)
                self._waiting.append(one)

    def close(self) -> None:
        """Keep what is needed, until there is nothing more."""
        while True:
            while self._waiting:
                self._need(self._waiting.pop())
            before = len(self.nodes)
            for statement in self._of.values():
                if statement.node not in self._whole and self._is_needed(statement):
                    self._whole.add(statement.node)
                    self.keep(statement.node)
                    self._keep_inside(statement.node)
            if len(self.nodes) == before and not self._waiting:
                return

    def _keep_inside(self, node: ast.stmt) -> None:
        """Of what is needed by its name: all of a function, the variables of a class and how it is made."""
        if node in self._functions:
            return
        if isinstance(node, _FUNCTIONS):
            for inner in ast.walk(node):
                if isinstance(inner, ast.stmt):
                    self.keep(inner)
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if not isinstance(one, _FUNCTIONS) or one.name in {"__init__", "__new__"}:
                    self.keep(one)
                elif self._with_calls and one.name.startswith("__"):
                    self._whole.add(one)
                    self.keep(one)
                    self._keep_inside(one)

    def _need(self, node: ast.stmt) -> None:
        """The names and attributes that a statement reads itself, not those of the statements in it."""
        statement = self._of[node]
        if (
            self._is_bare
            and isinstance(node, BLOCKS)
            and (statement.scope is None or statement.scope in self._functions)
        ):
            return
        for inner in _itself(node):
            if isinstance(inner, ast.Name):
                self._names.add((statement.path, statement.scope, inner.id))
                if isinstance(node, _SCOPES):  # of a decorator or a default
                    self._names.add((statement.path, None, inner.id))
            elif isinstance(inner, ast.Attribute):
                self._attributes.add(inner.attr)
            elif isinstance(inner, ast.alias):
                self._attributes.update(inner.name.split("."))

    def _is_needed(self, statement: _Statement) -> bool:
        node = statement.node
        if isinstance(node, ast.Global | ast.Nonlocal):
            return statement.scope in self.nodes
        if isinstance(node, (*_SCOPES, ast.Import, ast.ImportFrom)):
            names = [node.name] if isinstance(node, _SCOPES) else [_name(one) for one in node.names]
            is_method = isinstance(statement.scope, ast.ClassDef)
            if any(name in self._attributes for name in names) and isinstance(node, _SCOPES):
                return is_method or statement.scope is None
            return not is_method and any(self._reads(statement, name) for name in names)
        if isinstance(statement.scope, _FUNCTIONS) and statement.scope not in self.nodes:
            return self._sets_attribute(statement)
        return self._binds(statement) or (self._with_calls and self._is_state_call(statement))

    def _reads(self, statement: _Statement, name: str) -> bool:
        scopes = [one for one in statement.around if isinstance(one, _SCOPES)]
        if not scopes:  # of the module: any of its functions may read it
            return any(path == statement.path and used == name for path, _, used in self._names)
        return any(
            path == statement.path and used == name and (scope is scopes[-1] or scopes[-1] in self._around(scope))
            for path, scope, used in self._names
        )

    def _globals_of(self, name: str) -> Collection[str]:
        """The files whose module binds a name."""
        return {
            one.path
            for one in self._of.values()
            if one.scope is None and any(isinstance(each, ast.Name) and each.id == name for each in _targets(one.node))
        }

    def _around(self, scope: ast.stmt | None) -> Collection[ast.stmt]:
        return self._of[scope].around if scope is not None else ()

    def _binds(self, statement: _Statement) -> bool:
        for target in _targets(statement.node):
            if isinstance(target, ast.Name) and self._reads(statement, target.id):
                return True
            if isinstance(target, ast.Name) and statement.scope is None and target.id in self._attributes:
                return True
            if isinstance(target, ast.Attribute):
                base = last_name(target.value) or ""
                if target.attr in _TYPES or statement.scope is None:
                    if base in self._attributes or self._reads(statement, base):
                        return True
                elif target.attr in self._attributes:
                    return True
            if isinstance(target, ast.Subscript) and self._with_calls and self._is_known(statement, target.value):
                return True
        return False

    def _sets_attribute(self, statement: _Statement) -> bool:
        """In a function that is not needed so far, such as a constructor, a method that prepares."""
        return any(
            isinstance(one, ast.Attribute)
            and (one.attr in self._attributes if one.attr not in _TYPES else last_name(one.value) in self._attributes)
            for one in _targets(statement.node)
        )

    def _is_state_call(self, statement: _Statement) -> bool:
        """A call for what it does, of an object that is needed."""
        node = statement.node
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and self._is_known(statement, node.value.func.value)
        )

    def _is_known(self, statement: _Statement, value: ast.expr) -> bool:
        if isinstance(value, ast.Name):
            if value.id == "self":
                return False
            is_global = any(path == statement.path and used == value.id for path, _, used in self._names)
            return is_global if statement.path in self._globals_of(value.id) else self._reads(statement, value.id)
        return last_name(value) in self._attributes


def _itself(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements in it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(node))
    while waiting:
        one = waiting.pop()
        if not isinstance(one, ast.stmt):
            yield one
            waiting += ast.iter_child_nodes(one)


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        found += node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        found.append(node.target)
    elif isinstance(node, ast.With | ast.AsyncWith):
        found += [one.optional_vars for one in node.items if one.optional_vars is not None]
    for one in found:
        for each in ast.walk(one):
            if isinstance(each, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
                yield each


def _name(alias: ast.alias) -> str:
    return (alias.asname or alias.name).split(".")[0]
