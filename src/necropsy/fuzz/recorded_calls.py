"""Runs a program, and takes the calls that it makes of the target as the first ones of the campaign."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from necropsy import redact
from necropsy.crashed import signal_name
from necropsy.errors import NecropsyError
from necropsy.fuzz.attributes import Attribute
from necropsy.fuzz.checked_recipes import UnfitRecipeError, attribute_value, made_recipe, tensor_of
from necropsy.fuzz.definitions import Argument, OpDefinition
from necropsy.fuzz.engine import Call
from necropsy.fuzz.recipes import Input, Recipe, Tensor
from necropsy.model import Gap

COMMAND_S = 600.0
"""Seconds after which the program is ended; the calls that it has made until then are used."""
MOST_CALLS = 300
"""Of one op."""
_PATIENCE_S = 10.0
_MOST_FILES = 256
_MOST_BYTES = 16 << 20
"""Of one file."""
_TARGET = Path(__file__).parent / "target"
_BEGIN = """
try:
    import os, runpy
    _values = runpy.run_path(os.path.join({folder!r}, "argument_data.py"))
    _recorder = runpy.run_path(os.path.join({folder!r}, "recorder.py"))
    _recorder["begin"](os.environ["NECROPSY_FUZZ_RECORD"], _values["data_of"])
except Exception:
    pass
"""
"""Runs in the program's interpreter before the program. What fails in it costs the recording, never the program."""


@dataclass
class Recorded:
    """The calls of each op by its name, without doubles, and what was not recorded."""

    calls: dict[str, list[Recipe]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


def recorded(
    command: Sequence[str], target: Mapping[str, str], ops: Sequence[OpDefinition], *, limit_s: float = COMMAND_S
) -> Recorded:
    """Run the program to its end, and return its calls. Its output is its own.

    Raises:
        NecropsyError: there is no such program.

    """
    if shutil.which(command[0]) is None:
        raise NecropsyError(f"cannot run {command[0]}: there is no such program")
    with tempfile.TemporaryDirectory(prefix="necropsy-fuzz-") as folder:
        why = _run(command, _options(folder, target, ops), limit_s)
        found = _read(Path(folder), ops)
    said = " ".join(redact.argv(command))[:200]
    if why is not None:
        found.gaps.append(Gap(part=f"the command `{said}`", why=f"{why}; the calls that it had made were recorded"))
    for op in ops:
        if not found.calls.get(op.name):
            found.gaps.append(
                Gap(
                    part=f"{op.name}: recorded calls",
                    why=f"`{said}` made no call of it that could be recorded; generation begins without one",
                )
            )
    return found


def _options(folder: str, target: Mapping[str, str], ops: Sequence[OpDefinition]) -> dict[str, Any]:
    if "function" in target:
        return {"folder": folder, "module": target["module"], "function": target["function"]}
    wanted = {
        op.name: {
            "inputs": [(one.number, one.types) for one in op.inputs],
            "attributes": {one.name: one.type for one in op.given},
        }
        for op in ops
    }
    return {"folder": folder, "ops": wanted}


def _run(command: Sequence[str], options: Mapping[str, Any], limit_s: float) -> str | None:
    """Run it; what is to be said of its end, if anything."""
    from necropsy.confirm.runner import at_start  # not on Windows

    variables = {**os.environ, **at_start(_BEGIN.format(folder=str(_TARGET)))}
    sys.stdout.flush()
    try:
        process = subprocess.Popen(command, env={**variables, "NECROPSY_FUZZ_RECORD": json.dumps(options)})
    except OSError as error:
        raise NecropsyError(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"it was ended after {limit_s:,.0f} s"
    except BaseException:
        _end(process)
        raise
    if not code:
        return None
    return f"it was killed by {signal_name(-code)}" if code < 0 else f"it ended with exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ------------------------------------------------------------ what the recorder wrote


def _read(folder: Path, ops: Sequence[OpDefinition]) -> Recorded:
    found = Recorded()
    named = {op.name: op for op in ops}
    known: set[tuple[str, str]] = set()
    unfit: dict[str, list[str]] = {}
    for line in _lines(folder):
        try:
            data = json.loads(line)
            op = named.get(data["op"]) if "op" in data else ops[0]
            if op is None or len(found.calls.get(op.name, ())) >= MOST_CALLS:
                continue
            recipe = recipe_of(data, op)
        except UnfitRecipeError as error:
            if op is not None:
                unfit.setdefault(op.name, []).append(str(error))
            continue
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            continue  # a process was killed while it wrote
        if recipe.call not in known:
            known.add(recipe.call)
            found.calls.setdefault(op.name, []).append(recipe)
    for name, reasons in unfit.items():
        many = f"{len(reasons)} call{'' if len(reasons) == 1 else 's'} of the command left out"
        found.gaps.append(Gap(part=f"{name}: {many}", why=reasons[0]))
    return found


def _lines(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("calls-*.jsonl"))[:_MOST_FILES]:
        with path.open("rb") as file:
            yield from file.read(_MOST_BYTES).splitlines()


def drawn_calls(offered: Mapping[str, Any], op: OpDefinition) -> list[Recipe]:
    """What Hypothesis has drawn for a function, as far as it can be made again."""
    found: dict[Call, Recipe] = {}
    for data in offered.get("function", {}).get("drawn", ()):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):
            recipe = recipe_of(data, op)
            found[recipe.call] = recipe
    return list(found.values())


def undrawn_calls(offered: Mapping[str, Any]) -> list[Gap]:
    """Why Hypothesis has drawn nothing, though there are strategies."""
    why = offered.get("function", {}).get("undrawn")
    return [] if why is None else [Gap(part="Hypothesis's strategies", why=f"no call could be drawn: {why}")]


def recipe_of(data: Mapping[str, Any], op: OpDefinition) -> Recipe:
    """The recipe of a recorded call.

    Raises:
        UnfitRecipeError: it is no call that recipes can make.

    """
    if "arguments" in data:
        arguments = data["arguments"]
        inputs = [arguments.get(one.name) for one in op.inputs]
        attributes = arguments
    else:
        inputs, attributes = data["inputs"], data["attributes"]
    if len(inputs) != len(op.inputs):
        raise UnfitRecipeError("its inputs are not those of the op")
    types: dict[str, str] = {}
    for one, held in zip(op.inputs, inputs, strict=True):
        for each in _held(held):
            if one.type_attribute is not None and not each.get("weak"):
                types.setdefault(one.type_attribute, each["dtype"])
    made = {one.name: _input(held, one, types) for one, held in zip(op.inputs, inputs, strict=True)}
    values = {
        one.name: attribute_value(_plain(attributes[one.name], one), one)
        for one in op.given
        if attributes.get(one.name) is not None
    }
    return made_recipe(op, made, values)


def _held(held: Any) -> list[Mapping[str, Any]]:
    if not isinstance(held, dict) or not held.keys() & {"tensor", "tensors"}:
        raise UnfitRecipeError("an input is no tensor")
    return [held["tensor"]] if "tensor" in held else list(held["tensors"])


def _input(held: Any, one: Argument, types: Mapping[str, str]) -> Input:
    dtype = one.dtype or types.get(one.type_attribute or "")
    several = tuple(_tensor(each, dtype) for each in _held(held))
    return several if one.number is not None or one.types is not None else several[0]


def _tensor(data: Mapping[str, Any], wanted: str | None) -> Tensor:
    """``wanted``: the type that the target gives to Python's numbers."""
    dtype, items = data["dtype"], data["items"]
    if data.get("weak"):
        dtype = wanted or {"float64": "float32", "int64": "int32"}.get(dtype, dtype)
        if dtype.startswith(("float", "bfloat", "complex")):
            items = [float(one) for one in items]
    return tensor_of(dtype, data["shape"], data["kind"], items)


def _plain(held: Mapping[str, Any], one: Attribute) -> Any:
    """An attribute's value as recipes have it."""
    match held:
        case {"plain": value}:
            return float(value) if one.type == "float" and isinstance(value, int) else value
        case {"bytes": text} if one.type == "bytes":
            return {"bytes": text, "times": 1}
        case {"bytes": text}:
            return text
        case {"shape": shape}:
            return shape
        case {"list": several}:
            inner = Attribute(one.name, one.type[5:-1]) if one.type.startswith("list(") else one
            found = [_plain(each, inner) for each in itertools.islice(several, 64)]
            return [size for size in found if size is not None] if one.type == "shape" else found
        case {"tensor": {"shape": [_], "kind": "same" | "cycle", "items": items}} if one.type.startswith("list("):
            return items
        case {"tensor": {"shape": [], "items": [value]}}:
            return value
        case _:
            return held
