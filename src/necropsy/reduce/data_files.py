"""Passes that shorten the files that a program reads: by structure, by lines and columns, then by bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from necropsy.reduce.program import Program, Steps, from_the_end, in_parts, search

_MOST_PIECES = 20_000
"""How many pieces are tried one by one; a file of more lines is cut in blocks first."""
_BLOCKS = 64
_FEW_LINES = 50
"""A text of more lines is not shortened within them."""
_FEW_BYTES = 120
"""Contents of at most this length are shortened byte by byte."""
_LIBRARIES = (b"\x7fELF", b"MZ", b"PK\x03\x04")
"""Code: libraries, and archives that Python imports from."""
_LINE = re.compile(rb"[^\n]*\n|[^\n]+$")
_SEPARATORS = (b",", b"\t", b";", b" ")
_LONG_STRING = 16
"""A string of JSON with more characters is shortened."""
_MOST_STRINGS = 50
"""How many strings of one file are shortened, from the first one on."""

JsonPath = tuple[str | int, ...]


def drop_data_files(program: Program) -> Steps:
    """A pass that leaves out whole files."""
    for path in program.data_files:
        candidate = program.without_file(path)
        if (yield candidate):
            program = candidate
    return program


def shorten_data(program: Program) -> Steps:
    """A pass over all data files."""
    for path in program.data_files:
        data = program.files[path]
        if data.startswith(_LIBRARIES):
            continue
        if b"\0" in data:
            program = yield from _shorten_binary(program, path)
            continue
        if _json_of(data) is not None:
            program = yield from _shorten_json(program, path, b"", data, b"")
        else:
            program = yield from _shorten_text(program, path)
        if len(program.files[path]) <= _FEW_BYTES:
            program = yield from _without_pieces(program, path, _bytes_of(program.files[path]))
        elif _json_of(program.files[path]) is None and len(_LINE.findall(program.files[path])) == 1:
            program = yield from _shorten_binary(program, path)
    return program


def _shorten_text(program: Program, path: str) -> Steps:
    lines = _LINE.findall(program.files[path])
    if len(lines) > _MOST_PIECES:
        program = yield from _without_pieces(program, path, _blocks(lines))
        lines = _LINE.findall(program.files[path])
    program = yield from _without_pieces(program, path, lines)
    lines = _LINE.findall(program.files[path])
    if len(lines) > _FEW_LINES:
        return program
    if all(_json_of(line) is not None for line in lines):
        for number in reversed(range(len(lines))):
            now = _LINE.findall(program.files[path])
            before, after = b"".join(now[:number]), b"".join(now[number + 1 :])
            program = yield from _shorten_json(program, path, before, now[number], after)
        return program
    return (yield from _without_columns(program, path))


def _without_columns(program: Program, path: str) -> Steps:
    """A table without columns: the same field of all lines."""
    lines = _LINE.findall(program.files[path])
    separator = next((one for one in _SEPARATORS if lines and all(one in line for line in lines)), None)
    if separator is None:
        return program
    rows = [(fields_of(line.rstrip(b"\r\n"), separator), line[len(line.rstrip(b"\r\n")) :]) for line in lines]

    def made(gone: Sequence[int]) -> Program:
        kept = [
            separator.join(field for at, field in enumerate(fields) if at not in gone) + end for fields, end in rows
        ]
        return program.with_file(path, b"".join(kept))

    return (yield from search(program, range(max(len(fields) for fields, _ in rows)), from_the_end, made))


def fields_of(line: bytes, separator: bytes) -> list[bytes]:
    """The fields of a line. A separator between double quotes belongs to its field (RFC 4180)."""
    if b'"' not in line:
        return line.split(separator)
    mark = re.escape(separator)
    # A quote that is never closed is an ordinary character.
    found = re.findall(rb'((?:"(?:[^"]|"")*"(?=' + mark + rb"|$)|[^" + mark + rb"]*))(" + mark + rb"|$)", line)
    return [field for field, _ in found[: 1 + sum(bool(end) for _, end in found)]]


def _shorten_binary(program: Program, path: str) -> Steps:
    """A file without some of its blocks; then with smaller blocks, as long as that helps."""
    size = len(program.files[path]) + 1
    while len(program.files[path]) < size:
        size = len(program.files[path])
        program = yield from _without_pieces(program, path, _blocks(_bytes_of(program.files[path])))
    return program


def _without_pieces(program: Program, path: str, pieces: Sequence[bytes]) -> Steps:
    """The file without as many of its pieces as possible."""

    def made(gone: Sequence[int]) -> Program:
        out = set(gone)
        return program.with_file(path, b"".join(piece for at, piece in enumerate(pieces) if at not in out))

    return (yield from search(program, range(len(pieces)), in_parts, made))


def _blocks(pieces: Sequence[bytes]) -> list[bytes]:
    step = max(1, len(pieces) // _BLOCKS)
    return [b"".join(pieces[at : at + step]) for at in range(0, len(pieces), step)]


def _bytes_of(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# ---------------------------------------------------------------- JSON


def _json_of(data: bytes) -> Any | None:
    """The value of a text that is a list or an object in JSON."""
    if data.lstrip()[:1] not in {b"[", b"{"}:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _shorten_json(program: Program, path: str, before: bytes, data: bytes, after: bytes) -> Steps:
    """A list or an object without some of its items, the outer ones first; ``before`` and ``after`` stand around it."""
    value = _json_of(data)
    indent = 2 if b"\n" in data.strip() else None
    end = data[len(data.rstrip()) :]

    def written(changed: Any) -> Program:
        text = json.dumps(changed, indent=indent, ensure_ascii=False)
        return program.with_file(path, before + text.encode() + end + after)

    done: set[JsonPath] = set()
    while (at := next((one for one in _containers(value) if one not in done), None)) is not None:
        done.add(at)
        items = _at(value, at)
        keys = list(range(len(items))) if isinstance(items, list) else list(items)
        shorter = yield from search(program, keys, from_the_end, _leaving_out(written, value, at))
        if shorter is not program:
            program = shorter
            value = json.loads(program.files[path][len(before) : len(program.files[path]) - len(after)])
            done = {one for one in done if one[: len(at)] != at or one == at}  # what is below has other indices now
    for at in [one for one in _leaves(value) if _is_long(_at(value, one))][:_MOST_STRINGS]:
        text = _at(value, at)
        shorter = yield from search(program, range(len(text)), in_parts, _with_less_text(written, value, at, text))
        if shorter is not program:
            program = shorter
            value = json.loads(program.files[path][len(before) : len(program.files[path]) - len(after)])
    return program


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > _LONG_STRING


def _with_less_text(
    written: Callable[[Any], Program], value: Any, at: JsonPath, text: str
) -> Callable[[list[int]], Program]:
    def made(gone: list[int]) -> Program:
        out = set(gone)
        return written(_replaced(value, at, "".join(one for number, one in enumerate(text) if number not in out)))

    return made


def _leaving_out(written: Callable[[Any], Program], value: Any, at: JsonPath) -> Callable[[list[Any]], Program]:
    return lambda gone: written(_without(value, at, gone))


def _containers(value: Any, at: JsonPath = ()) -> Iterator[JsonPath]:
    """The paths of lists and objects that have items."""
    waiting = [(at, value)]
    while waiting:
        path, one = waiting.pop(0)
        if isinstance(one, list | dict) and one:
            yield path
            waiting += [
                ((*path, key), item) for key, item in (enumerate(one) if isinstance(one, list) else one.items())
            ]


def _leaves(value: Any) -> Iterator[JsonPath]:
    for at in _containers(value):
        container = _at(value, at)
        keys = range(len(container)) if isinstance(container, list) else container
        yield from ((*at, key) for key in keys if not isinstance(container[key], list | dict))


def _at(value: Any, path: JsonPath) -> Any:
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, path: JsonPath, new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, list):
        return [_replaced(item, path[1:], new) if at == path[0] else item for at, item in enumerate(value)]
    return {key: _replaced(item, path[1:], new) if key == path[0] else item for key, item in value.items()}


def _without(value: Any, path: JsonPath, gone: Sequence[Any]) -> Any:
    """A copy without some items of the container at ``path``."""
    container, out = _at(value, path), set(gone)
    if isinstance(container, list):
        return _replaced(value, path, [item for at, item in enumerate(container) if at not in out])
    return _replaced(value, path, {key: item for key, item in container.items() if key not in out})
