"""Records the calls of the target in a program that runs as it is: Python 3.8 and later, no module of necropsy.

An op is seen where TensorFlow's generated functions hand it to the runtime, before it runs, so that the call that
kills the program is recorded, too. In a graph an op has no values yet: its types, shapes and constants are taken. A
Python function is wrapped at the end of its module's import.

Each process appends to a file of its own, ``calls-PID.jsonl``: ``{"op": ..., "inputs": [...], "attributes": {...}}``,
or ``{"arguments": {...}}`` for a function, with values as ``argument_data`` has them.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

MOST_CALLS = 300
"""Of one op, in one process."""
MOST_ALIKE = 4
"""Calls with the same types, shapes and attributes."""
_LONGEST_LINE = 1 << 16

_EXECUTE = "tensorflow.python.eager.execute"
_FAST = "tensorflow.python.pywrap_tfe"
_GRAPH = "tensorflow.python.framework.op_def_library"

DataOf = Callable[[Any], Optional[Dict[str, Any]]]


def begin(options: str, data_of: DataOf) -> None:
    """Watch the imports of this process. ``options``: the JSON that ``necropsy.fuzz.recording`` writes."""
    read = json.loads(options)
    calls = _Calls(read["folder"], data_of)
    if "ops" in read:
        ops = _Ops(read["ops"], calls)
        hooks: Dict[str, Callable[[Any], None]] = {
            _FAST: ops.hook_fast,
            _EXECUTE: ops.hook_slow,
            _GRAPH: ops.hook_graph,
        }
        sys.meta_path.insert(0, _Finder(hooks, None, None))
        return
    function = _Function(read["function"], calls)
    if read["module"].endswith(".py"):
        sys.meta_path.insert(0, _Finder({}, os.path.realpath(read["module"]), function.hook))
    elif read["module"] in sys.modules:
        function.hook(sys.modules[read["module"]])
    else:
        sys.meta_path.insert(0, _Finder({read["module"]: function.hook}, None, None))


class _Calls:
    """The file of recorded calls of this process."""

    def __init__(self, folder: str, data_of: DataOf) -> None:
        self.folder, self.data_of = folder, data_of
        self.many: Dict[str, int] = {}
        self.alike: Dict[Any, int] = {}
        self.busy = threading.local()

    def note(self, name: str, outline: Any, made: Callable[[], Optional[Dict[str, Any]]]) -> None:
        """Write a call, unless there are enough of its kind; whatever goes wrong, the program does not notice."""
        if getattr(self.busy, "now", False):
            return
        self.busy.now = True
        try:
            if self.many.get(name, 0) >= MOST_CALLS or self.alike.get(outline, 0) >= MOST_ALIKE:
                return
            self.alike[outline] = self.alike.get(outline, 0) + 1
            data = made()
            line = b"" if data is None else json.dumps(data).encode() + b"\n"
            if not line or len(line) > _LONGEST_LINE:
                return
            self.many[name] = self.many.get(name, 0) + 1
            self._write(line)
        except Exception:  # noqa: BLE001, S110 - a call that cannot be recorded is left out
            pass
        finally:
            self.busy.now = False

    def _write(self, line: bytes) -> None:
        path = os.path.join(self.folder, "calls-%d.jsonl" % os.getpid())
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)


class _Ops:
    """Calls of ops. ``wanted``: for each op its inputs (the attributes that make each a list), and its attributes."""

    def __init__(self, wanted: Dict[str, Any], calls: _Calls) -> None:
        self.wanted, self.calls = wanted, calls

    def hook_fast(self, module: Any) -> None:
        """Eager calls as they are written, whose arguments may be plain Python."""
        before = module.TFE_Py_FastPathExecute

        def execute(ctx: Any, op: Any, name: Any, *arguments: Any) -> Any:
            one = self.wanted.get(op)
            if one is not None:
                many = len(one["inputs"])
                attributes = dict(zip(arguments[many::2], arguments[many + 1 :: 2]))
                self._note(op, list(arguments[:many]), attributes)
            return before(ctx, op, name, *arguments)

        module.TFE_Py_FastPathExecute = execute

    def hook_slow(self, module: Any) -> None:
        """Eager calls that the fast path cannot make: their inputs stand in one row."""
        before = module.execute

        def execute(op_name: Any, num_outputs: Any, inputs: Any, attrs: Any, ctx: Any, name: Any = None) -> Any:
            op = op_name.decode() if isinstance(op_name, bytes) else op_name
            one = self.wanted.get(op)
            if one is not None:
                attributes = dict(zip(attrs[::2], attrs[1::2])) if attrs else {}
                self._note(op, _apart(list(inputs), one["inputs"], attributes), attributes)
            return before(op_name, num_outputs, inputs, attrs, ctx, name)

        module.execute = execute

    def hook_graph(self, module: Any) -> None:
        """Ops of a graph, once they are built."""
        before = module._apply_op_helper

        def build(op_type_name: Any, *arguments: Any, **given: Any) -> Any:
            result = before(op_type_name, *arguments, **given)
            one = self.wanted.get(op_type_name)
            if one is not None:
                try:
                    attributes = _attributes(result[2], one)
                    self._note(op_type_name, _apart(list(result[2].inputs), one["inputs"], attributes), attributes)
                except Exception:  # noqa: BLE001, S110 - see note
                    pass
            return result

        module._apply_op_helper = build

    def _note(self, op: str, inputs: Optional[List[Any]], attributes: Dict[str, Any]) -> None:
        one = self.wanted[op]

        def made() -> Optional[Dict[str, Any]]:
            if inputs is None:
                return None
            found = [
                _tensors(each, self.calls.data_of) if number or types else _tensor(each, self.calls.data_of)
                for each, (number, types) in zip(inputs, one["inputs"])
            ]
            if None in found or len(found) != len(one["inputs"]):
                return None
            named = {
                name: self.calls.data_of(_value(attributes[name], kind))
                for name, kind in one["attributes"].items()
                if name in attributes
            }
            return {"op": op, "inputs": found, "attributes": {k: v for k, v in named.items() if v is not None}}

        named = tuple((name, str(attributes.get(name))) for name in one["attributes"])
        self.calls.note(op, (op, tuple(map(_outline, inputs or ())), named), made)


def _value(value: Any, kind: str) -> Any:
    """An attribute as a program gives it: the runtime has numbers for types."""
    if kind == "type" and isinstance(value, int):
        return sys.modules["tensorflow.python.framework.dtypes"].as_dtype(value)
    return value


def _apart(inputs: List[Any], wanted: List[Tuple[str, str]], attributes: Dict[str, Any]) -> Optional[List[Any]]:
    """The inputs of a row, with those together that are one list."""
    found: List[Any] = []
    for number, types in wanted:
        if number or types:
            many = attributes.get(number or types)
            many = many if isinstance(many, int) else len(many or ())
            found.append(inputs[:many])
            inputs = inputs[many:]
        else:
            found.append(inputs[0] if inputs else None)
            inputs = inputs[1:]
    return found


def _attributes(op: Any, wanted: Dict[str, Any]) -> Dict[str, Any]:
    names = [*wanted["attributes"], *(one for each in wanted["inputs"] for one in each if one)]
    found = {}
    for name in names:
        try:
            found[name] = op.get_attr(name)
        except ValueError:
            continue
    return found


def _tensor(value: Any, data_of: DataOf) -> Optional[Dict[str, Any]]:
    if hasattr(value, "dtype"):
        return data_of(value)
    numpy = sys.modules["numpy"]
    data = data_of(numpy.asarray(value))
    if data is None or "tensor" not in data:
        return None
    return {"tensor": {**data["tensor"], "weak": True}}


def _tensors(values: Any, data_of: DataOf) -> Optional[Dict[str, Any]]:
    found = [_tensor(one, data_of) for one in values]
    return None if None in found else {"tensors": [one["tensor"] for one in found if one is not None]}


def _outline(value: Any) -> Any:
    """What two calls must share to be alike."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_outline, value[:8])), len(value)
    if hasattr(value, "dtype"):
        return str(value.dtype), str(getattr(value, "shape", None))
    return (type(value).__name__, len(value)) if isinstance(value, (str, bytes)) else type(value).__name__


class _Function:
    """Calls of one function of a module."""

    def __init__(self, name: str, calls: _Calls) -> None:
        self.name, self.calls = name, calls

    def hook(self, module: Any) -> None:
        """Put the recording function into its place, with its name, its hints and its documentation."""
        function = getattr(module, self.name)
        signature = inspect.signature(function)
        calls, name = self.calls, self.name

        @functools.wraps(function)
        def recorded(*arguments: Any, **given: Any) -> Any:
            def made() -> Dict[str, Any]:
                bound = signature.bind(*arguments, **given).arguments
                return {"arguments": {each: calls.data_of(value) for each, value in bound.items()}}

            outline = (*map(_outline, arguments), *((key, _outline(one)) for key, one in sorted(given.items())))
            calls.note(name, outline, made)
            return function(*arguments, **given)

        setattr(module, self.name, recorded)


class _Finder:
    """Finds modules as the other finders do, and calls a hook at the end of the import of a wanted one."""

    def __init__(
        self, hooks: Dict[str, Callable[[Any], None]], file: Optional[str], hook: Optional[Callable[[Any], None]]
    ) -> None:
        """``hooks``: by the module's name; ``file`` and ``hook``: for the module of this file, whatever its name."""
        self.hooks, self.file, self.hook = hooks, file, hook
        self.busy = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As in importlib.abc.MetaPathFinder."""
        if (self.file is None and name not in self.hooks) or getattr(self.busy, "now", False):
            return None
        self.busy.now = True
        try:
            spec = self._of_the_others(name, path, target)
        finally:
            self.busy.now = False
        if spec is None:
            return None
        hook = self.hooks.get(name)
        if self.file is not None and spec.origin and os.path.realpath(spec.origin) == self.file:
            hook = self.hook
        if hook is not None:
            _after_import(spec.loader, hook)
        return spec

    def _of_the_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                return spec
        return None


def _after_import(loader: Any, hook: Callable[[Any], None]) -> None:
    before = loader.exec_module

    def exec_module(module: Any) -> None:
        before(module)
        try:
            hook(module)
        except Exception:  # noqa: BLE001, S110 - the program goes on without the recording
            pass

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass
