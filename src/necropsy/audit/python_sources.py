"""Finds places in Python sources that can make native code crash. Works on the syntax tree; nothing is executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy.errors import InputError, NoInputError
from necropsy.formats.foreign_calls import dotted as _name
from necropsy.model import SourceUse
from necropsy.model.op import UseKind

_LARGEST = 32 << 20
_IGNORED = re.compile(r"#\s*necropsy:\s*ignore\[([\w\-, ]+)\]")
_LOADERS = frozenset({"CDLL", "PyDLL", "WinDLL", "OleDLL", "LoadLibrary"})
_PROTOTYPES = frozenset({"CFUNCTYPE", "PYFUNCTYPE", "WINFUNCTYPE"})
# Functions of ctypes, and methods of its types, that take an address.
_TAKES_ADDRESS = frozenset({"cast", "string_at", "wstring_at", "from_address", "c_void_p", "memmove", "memset"})
_PY_FUNCTIONS = frozenset({"py_function", "numpy_function", "py_func"})
_REMOVED = frozenset(
    {"Session", "InteractiveSession", "placeholder", "ConfigProto", "GPUOptions", "global_variables_initializer"}
    | {
        "get_default_graph",
        "reset_default_graph",
        "get_variable",
        "variable_scope",
        "contrib",
        "placeholder_with_default",
    }
)
_KEEPS = re.compile(
    r"set|regist|install|subscri|attach|connect|callback|hook|handler|(?:^|_)(?:on|add)_", re.IGNORECASE
)
_STARTS_WORKERS = frozenset({"Pool", "Process", "ProcessPoolExecutor"})


def look(path: str, stack: int) -> tuple[SourceUse, ...]:
    """Uses in the file, for a stack of ``stack`` bytes; raises ``NoInputError``, or ``InputError`` (bad syntax)."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(raw) > _LARGEST:
        raise InputError(f"{path} is larger than {_LARGEST >> 20} MiB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw, path)
            lines = raw.decode("utf-8", "replace").splitlines()
            return tuple(_Reader(path, stack, lines, tree).uses())
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"{path} is not Python{line}: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{path} is nested too deeply to be read") from None


def _number(node: ast.expr) -> int | None:
    """The value of a constant integer expression: ``10**6``, ``64 * 1024``, ``int(1e6)``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return int(node.value) if abs(node.value) < 1 << 62 else None
    if isinstance(node, ast.Call) and _name(node.func) == "int" and len(node.args) == 1:
        return _number(node.args[0])
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left), _number(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Pow) and 0 <= right <= 64 and abs(left) <= 1 << 16:
            return int(left**right)
        if isinstance(node.op, ast.LShift) and 0 <= right <= 62:
            return left << right
        if isinstance(node.op, ast.Add):
            return left + right
    return None


@dataclass
class _Reader:
    path: str
    stack: int
    lines: list[str]
    tree: ast.Module
    modules: dict[str, str] = field(default_factory=dict)
    """Local names of modules and of imported names: ``tf`` is ``tensorflow``."""
    libraries: set[str] = field(default_factory=set)
    """Libraries loaded by ctypes."""
    typed: set[str] = field(default_factory=set)
    """``lib.function`` with a set restype."""
    prototypes: set[str] = field(default_factory=set)
    """Callback types of ctypes."""

    def uses(self) -> Iterator[SourceUse]:
        """In the order of the file."""
        self._collect()
        found = [
            one for part in (self._limits, self._ctypes, self._forks, self._sessions, self._functions) for one in part()
        ]
        found.sort(key=lambda one: (one.line, one.column, one.kind))
        yield from (one for one in found if not self._is_ignored(one))

    def _is_ignored(self, one: SourceUse) -> bool:
        for line in (one.line, one.line - 1):
            match = _IGNORED.search(self.lines[line - 1]) if 0 < line <= len(self.lines) else None
            if match is not None and f"op-python-{one.kind}" in re.split(r"[,\s]+", match[1]):
                return True
        return False

    def _use(
        self, kind: UseKind, node: ast.expr | ast.stmt, name: str, detail: str | None = None, value: int | None = None
    ) -> SourceUse:
        whole = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        return SourceUse(
            kind=kind,
            path=self.path,
            line=node.lineno,
            column=len(whole.encode()[: node.col_offset].decode("utf-8", "replace")) + 1,
            end_line=node.end_lineno or node.lineno,
            text=whole.strip()[:200],
            name=name,
            detail=detail,
            value=value,
        )

    def _collect(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.modules[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self.modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Assign):
                self._assigned(node)

    def _assigned(self, node: ast.Assign) -> None:
        call = node.value
        for target in map(_name, node.targets):
            if target.endswith((".restype", ".errcheck")):
                self.typed.add(target.rpartition(".")[0])
            elif target and isinstance(call, ast.Call):
                last = self._full(call.func).rpartition(".")[2]
                if last in _LOADERS:
                    self.libraries.add(target)
                elif last in _PROTOTYPES:
                    self.prototypes.add(target)

    def _full(self, node: ast.expr) -> str:
        """The dotted name with its imported first part: ``tensorflow.Session`` for ``tf.Session``."""
        name = _name(node)
        first, dot, rest = name.partition(".")
        return f"{self.modules[first]}{dot}{rest}" if first in self.modules else name

    def _calls(self, root: ast.AST | None = None) -> Iterator[ast.Call]:
        return (node for node in ast.walk(root or self.tree) if isinstance(node, ast.Call))

    def _limits(self) -> Iterator[SourceUse]:
        sizes = [
            size
            for call in self._calls()
            if self._full(call.func) == "threading.stack_size" and call.args
            for size in [_number(call.args[0])]
            if size
        ]
        for call in self._calls():
            name = self._full(call.func)
            value = _number(call.args[0]) if len(call.args) == 1 else None
            if value is None:
                continue
            if name == "sys.setrecursionlimit":
                one = self._use("recursion-limit", call, name, value=value)
                yield msgspec.structs.replace(one, stack=max([self.stack, *sizes]))
            elif name == "threading.stack_size" and value > 0:
                heavy = next((one for one in ("tensorflow", "torch", "jax", "numpy") if self._has(one)), None)
                yield self._use("thread-stack", call, name=name, value=value, detail=heavy)

    def _has(self, module: str) -> bool:
        return any(one == module or one.startswith(f"{module}.") for one in self.modules.values())

    def _ctypes(self) -> Iterator[SourceUse]:
        assigned = {
            _name(node.targets[0]): node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call)
        }
        for call in self._calls():
            for argument in call.args:
                if self._is_callback(argument) and self._keeps(call.func):
                    yield self._use("ctypes", argument, name=_name(call.func), detail="not kept alive")
            if not self._takes_address(call):
                continue
            for argument in call.args[:1]:
                made = assigned.get(_name(argument)) if _name(argument) else argument
                if isinstance(made, ast.Call) and self._is_untyped(made.func):
                    yield self._use("ctypes", made, name=_name(made.func), detail="no restype")

    def _takes_address(self, call: ast.Call) -> bool:
        full = self._full(call.func)
        return (full.startswith("ctypes.") and full.rpartition(".")[2] in _TAKES_ADDRESS) or full.endswith(
            ".from_address"
        )

    def _of_library(self, function: ast.expr) -> bool:
        return _name(function).rpartition(".")[0] in self.libraries

    def _keeps(self, function: ast.expr) -> bool:
        """By its name, the function keeps its argument; ``qsort`` uses it only during the call."""
        return self._of_library(function) and _KEEPS.search(_name(function).rpartition(".")[2]) is not None

    def _is_untyped(self, function: ast.expr) -> bool:
        return self._of_library(function) and _name(function) not in self.typed

    def _is_callback(self, node: ast.expr) -> bool:
        """``PROTOTYPE(function)``, or ``CFUNCTYPE(...)(function)``, made for this one call."""
        if not isinstance(node, ast.Call):
            return False
        if _name(node.func) in self.prototypes:
            return True
        return isinstance(node.func, ast.Call) and self._full(node.func.func).rpartition(".")[2] in _PROTOTYPES

    def _forks(self) -> Iterator[SourceUse]:
        """Forks after a TensorFlow call in the same block."""
        for scope in ast.walk(self.tree):
            if not isinstance(scope, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            started = False
            for call in sorted(self._own_calls(scope), key=lambda one: (one.lineno, one.col_offset)):
                full = self._full(call.func)
                if started and self._is_fork(call, full):
                    yield self._use("fork", call, name=_name(call.func) or full, detail="after tensorflow")
                elif full.startswith("tensorflow.") and not full.startswith(("tensorflow.config", "tensorflow.compat")):
                    started = True

    def _own_calls(self, scope: ast.AST) -> Iterator[ast.Call]:
        """Calls in a scope, without nested functions and classes and the main-module part."""
        waiting = list(ast.iter_child_nodes(scope))
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(node, ast.Call):
                yield node
            waiting.extend(ast.iter_child_nodes(node))

    def _is_fork(self, call: ast.Call, full: str) -> bool:
        if full == "os.fork":
            return True
        last = full.rpartition(".")[2]
        if last in {"get_context", "set_start_method"} and full.startswith("multiprocessing"):
            return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == "fork"
        return (
            last in _STARTS_WORKERS
            and full.startswith(("multiprocessing.", "concurrent.futures."))
            and not any(word.arg in {"mp_context", "context"} for word in call.keywords)
            and not self._other_start_method()
        )

    def _other_start_method(self) -> bool:
        return any(
            self._full(call.func).endswith(("set_start_method", "get_context"))
            and bool(call.args)
            and isinstance(call.args[0], ast.Constant)
            and call.args[0].value != "fork"
            for call in self._calls()
        )

    def _sessions(self) -> Iterator[SourceUse]:
        if any(self._full(call.func) == "hasattr" for call in self._calls()):
            return  # it asks which TensorFlow it has
        guarded = {id(each) for node in ast.walk(self.tree) if isinstance(node, ast.Try) for each in ast.walk(node)}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Attribute) or node.attr not in _REMOVED or id(node) in guarded:
                continue
            if self._full(node) == f"tensorflow.{node.attr}":
                yield self._use("tf1-session", node, name=_name(node))

    def _functions(self) -> Iterator[SourceUse]:
        """Functions called by TensorFlow on its own threads that recurse or change shared state."""
        defined = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}
        for call in self._calls():
            if self._full(call.func).rpartition(".")[2] not in _PY_FUNCTIONS or "tensorflow" not in self._full(
                call.func
            ):
                continue
            given = (
                call.args[0] if call.args else next((word.value for word in call.keywords if word.arg == "func"), None)
            )
            function = defined.get(_name(given)) if given is not None else None
            if function is None:
                continue
            if any(_name(each.func) == function.name for each in self._calls(function)):
                yield self._use("py-function", function, name=function.name, detail="calls itself")
            elif self._changes_state(function):
                yield self._use("py-function", function, name=function.name, detail="changes state")

    @staticmethod
    def _changes_state(function: ast.FunctionDef) -> bool:
        """It assigns to outer names without a lock."""
        shared = {
            name for node in ast.walk(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names
        }
        assigned = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        locked = any(
            "lock" in ast.unparse(item.context_expr).lower()
            for node in ast.walk(function)
            if isinstance(node, ast.With)
            for item in node.items
        )
        return bool(shared & assigned) and not locked
