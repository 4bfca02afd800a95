"""What is left out of Python files: each candidate is valid, and what stays is as it was written."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driven_passes import driven
from necropsy.reduce import trial_server
from necropsy.reduce.expressions import simplified_expressions
from necropsy.reduce.flattening import (
    flattened_attributes,
    flattened_items,
    merged_variables,
    substituted_variables,
)
from necropsy.reduce.inlining import inlined_functions
from necropsy.reduce.merging import merge_modules
from necropsy.reduce.observed_values import SEEN, with_observed_values
from necropsy.reduce.parameters import unused_parameters
from necropsy.reduce.program import Pass, Program, Search, from_the_end, in_parts, search
from necropsy.reduce.python_source import compiles
from necropsy.reduce.rewriting import rewriting
from necropsy.reduce.statements import drop_never_ran, drop_statements
from necropsy.reduce.tidying import tidy
from necropsy.reduce.trials import is_hopeless
from necropsy.reduce.unrolling import unrolled_loops
from necropsy.reduce.unwrapping import dropped_decorators, unwrapped_blocks

PASSES: dict[str, Pass] = {
    "statements": drop_statements,
    "blocks": rewriting(unwrapped_blocks),
    "decorators": rewriting(dropped_decorators),
    "expressions": rewriting(simplified_expressions({"gather"})),
    "functions": rewriting(inlined_functions),
    "attributes": rewriting(flattened_attributes),
    "parameters": rewriting(unused_parameters),
    "variables": rewriting(substituted_variables),
    "items": rewriting(flattened_items),
    "same values": rewriting(merged_variables),
    "comments": tidy,
}
LIBRARY = Path(sysconfig.get_path("stdlib"))
FILES = ("keyword.py", "chunk.py", "glob.py", "struct.py", "codeop.py", "reprlib.py", "sched.py", "shlex.py", "uu.py")


def one(data: bytes) -> Program:
    return Program({"a.py": data}, "a.py")


def made(text: str, make: Pass, wanted: Callable[[str], bool]) -> str:
    """The text after a pass that keeps to what is wanted."""
    return (
        driven(one(text.encode()), make, lambda program: wanted(program.files["a.py"].decode()))[0]
        .files["a.py"]
        .decode()
    )


@pytest.mark.parametrize("name", FILES)
def test_of_files_of_the_standard_library(name: str) -> None:
    path = LIBRARY / name
    if not path.is_file():
        pytest.skip(f"{name} is not in this Python's library any more")
    data = path.read_bytes()
    chance = random.Random(name)
    for kind, make in PASSES.items():
        nothing, _ = driven(one(data), make, lambda _: False)
        assert nothing.files["a.py"] == data, kind
        some, invalid = driven(one(data), make, lambda _: chance.random() < 0.5)
        assert compiles(some.files["a.py"]), kind
        assert kind == "blocks" or not invalid, kind  # `break` outside of its loop is found out by compiling
    everything, _ = driven(one(data), drop_statements, lambda _: True)
    assert everything.files["a.py"] == b""


def test_an_encoding_line_ends_tabs_and_other_letters_stay() -> None:
    text = "# -*- coding: latin-1 -*-\r\nwort = 'Größe'\r\nif wort:\r\n\tweg = 1\r\n\tbleibt = 'Straße'  # ja\r\n"
    data = text.encode("latin-1")
    program, _ = driven(one(data), drop_statements, lambda one: "Straße".encode("latin-1") in one.files["a.py"])
    assert program.files["a.py"] == text.replace("wort = 'Größe'\r\n", "").replace("\tweg = 1\r\n", "").encode(
        "latin-1"
    )


@pytest.mark.parametrize(
    ("before", "keep", "after"),
    [
        ("a = 1; b = 2; c = 3\n", "b = 2", "b = 2\n"),
        ("if a: b = 1; c = 2\nelse: d = 3\n", "c = 2", "if a: c = 2\n"),
        ("def f():\n    '''Text.'''\n    x = 1\n", "def f", "def f():\n    pass\n"),
        ("if a:\n    b = 1\nelif c:\n    d = 2\nelse:\n    e = 3\n", "d = 2", "if a:\n    pass\nelif c:\n    d = 2\n"),
        (
            "try:\n    a = 1\nexcept E:\n    b = 2\nfinally:\n    c = 3\n",
            "a = 1",
            "try:\n    a = 1\nfinally:\n    c = 3\n",
        ),
        (
            "match a:\n    case 1:\n        b = 1\n    case _:\n        c = 2\n",
            "c = 2",
            "match a:\n    case _:\n        c = 2\n",
        ),
        ("x = '''\n  text\n'''\n# of y\ny = f'{x}'\n\n\n# of z\nz = 1\n", "y =", "# of y\ny = f'{x}'\n\n\n"),
        (
            "@first\n@second(\n    1)\ndef f():\n    return 1\n",
            "@second",
            "@first\n@second(\n    1)\ndef f():\n    pass\n",
        ),
    ],
)
def test_statements_go_and_the_rest_stays_as_it_was(before: str, keep: str, after: str) -> None:
    assert made(before, drop_statements, lambda text: keep in text) == after


@pytest.mark.parametrize(
    ("before", "keep", "after"),
    [
        ("if a:\n    b = '''\n    c'''\n", "b =", "b = '''\n    c'''\n"),
        ("for x in y:\n    use(x)\n", "next", "x = next(iter(y))\nuse(x)\n"),
        ("with open(p) as f:\n\tuse(f)\n", "open", "f = open(p)\nuse(f)\n"),
        ("if a:\n    b\nelif c:\n    d\nelse:\n    e\n", "e", "e\n"),
        ("for x in y:\n    use(x)\n", "*_, x", "*_, x = y\nuse(x)\n"),
        ("with made() as m:\n    use(m)\n", "(made()).__enter__()", "m = (made()).__enter__()\nuse(m)\n"),
        ("if start(4) != 1:\n    pass\n", "start(4) != 1\n", "start(4) != 1\npass\n"),
        ("try:\n    a\nexcept E:\n    b\n", "a", "a\n"),
        ("if a:\n    b  # why\n", "b", "b  # why\n"),
        ("def f():\n    if a: b; c\n", "c", "def f():\n    b; c\n"),
    ],
)
def test_blocks_are_replaced_by_what_is_in_them(before: str, keep: str, after: str) -> None:
    assert made(before, rewriting(unwrapped_blocks), lambda text: keep in text.split("\n")[-2] or keep in text) == after


def test_expressions_get_simpler_but_calls_on_the_line_that_died_keep_their_arguments() -> None:
    before = "x = lib.gather(make(1), [1, 2, 3, 4], scale=9)\ny = data.map(f).batch(8)\n"
    after = made(
        before, rewriting(simplified_expressions({"gather"})), lambda text: "lib.gather" in text and "data" in text
    )
    first, second = after.splitlines()
    assert first.startswith("x = lib.gather(")
    assert first.count(",") >= 2
    assert "scale=" in first
    assert second == "y = data"


def test_a_function_that_is_called_once_is_inlined() -> None:
    before = "def go(a, b=2):\n    '''Text.'''\n    c = a + b\n    return c\n\n\nresult = go(1)\n"
    assert made(before, rewriting(inlined_functions), lambda text: "result" in text) == "c = 1 + 2\nresult = c\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "class Table:\n    def __init__(self, size):\n        self.size = size\n\n    def fill(self, value):\n        put(self.size, value)\n\n\ntable = Table(3)\ntable.fill(4)\n",
            "class Table:\n    pass\n\n\ntable = Table()\ntable.size = 3\nput(table.size, 4)\n",
        ),
        ("def go(x):\n    x += 1\n    return x * 2\n\n\ny = 3 * go(f(1))\n", "x = f(1)\nx += 1\ny = 3 * (x * 2)\n"),
        ("def go(x):\n    return x.real\n\n\ny = go(1)\n", "y = (1).real\n"),
        (
            "class A:\n    def run(self):\n        f()\n\n\nrun = A().run()\n",
            "class A:\n    pass\n\n\nf()\nrun = None\n",
        ),
        (  # the types of a function of ctypes do not count as a use, and neither does what the method calls
            "class A:\n    def run(self):\n        self.lib.run(1)\n\n\nlib.run.argtypes = [int]\na = A()\na.run()\n",
            "class A:\n    pass\n\n\nlib.run.argtypes = [int]\na = A()\na.lib.run(1)\n",
        ),
    ],
)
def test_methods_and_constructors_are_inlined(before: str, after: str) -> None:
    found = made(before, rewriting(inlined_functions), lambda _: True)
    assert [line for line in found.splitlines() if line] == [line for line in after.splitlines() if line]


@pytest.mark.parametrize(
    "before",
    [
        "def go():\n    if x:\n        return 1\n    return 2\n\n\ny = go()\n",
        "def go():\n    return 1\n\n\ny = go() + go()\n",
        "def go(*, a):\n    return a\n\n\ny = go(**b)\n",
        "def go():\n    yield 1\n\n\ny = go()\n",
        "def go(a):\n    go(a)\n",
        "def go(a):\n    return a\n\n\ny = [go(x) for x in z]\n",
    ],
)
def test_what_cannot_be_inlined_stays(before: str) -> None:
    assert made(before, rewriting(inlined_functions), lambda _: True) == before


def test_attributes_that_the_module_assigns_become_variables() -> None:
    before = "a.b = 1\nf(a.b, c.a.b, a.d)\n\n\ndef g(self):\n    self.e = self.b\n"
    after = "b = 1\nf(b, b, a.d)\n\n\ndef g(self):\n    self.e = b\n"
    assert made(before, rewriting(flattened_attributes), lambda _: True) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = g(1)\nf(a)\n", "f(g(1))\n"),
        ("a = 1 + 2\nf(a * 3)\n", "f((1 + 2) * 3)\n"),
        ("a = 1\nf(a, a)\n", "a = 1\nf(a, a)\n"),
        ("a = 1\na += f(2)\n", "a = 1\nf(2)\n"),
        ("a = 1\nb = f'{a}'\n", "a = 1\nb = f'{a}'\n"),
    ],
)
def test_a_variable_that_is_read_once_is_replaced_by_its_value(before: str, after: str) -> None:
    assert made(before, rewriting(substituted_variables), lambda _: True) == after


def test_items_of_a_dictionary_with_literal_keys_become_variables() -> None:
    before = "d = {}\nx = 1\nd['a'] = f()\nd['no name'] = 2\nd['x'] = 3\ng(d['a'], d['no name'])\n"
    after = "x = 1\na = f()\nd_no_name = 2\nd_x = 3\ng(a, d_no_name)\n"
    assert made(before, rewriting(flattened_items), lambda _: True) == after
    for other in ("d = {}\nd['a'] = 1\nf(d)\n", "d = {}\nd[key] = 1\n", "d = {'b': 1}\nd['a'] = 1\n"):
        assert made(other, rewriting(flattened_items), lambda _: True) == other


def test_of_two_variables_with_the_same_value_one_is_left() -> None:
    before = "a = f()\nb = f()\nuse(a, b)\n"
    assert made(before, rewriting(merged_variables), lambda _: True) == "a = f()\nuse(a, a)\n"


def test_a_short_loop_is_unrolled_where_less_is_left_in_the_end() -> None:
    before = "for x in [1, 2]:\n    y = x\n    f(x)\n"
    make = unrolled_loops([drop_statements], set())
    assert made(before, make, lambda text: "f(x)" in text) == "f(x)\n"
    make = unrolled_loops([drop_statements], set())
    assert made(before, make, lambda text: text.count("f(x)") == 2 or "for" in text) == "f(x)\nf(x)\n"
    make = unrolled_loops([drop_statements], set())
    needed = lambda text: "for" in text or text.count("x =") == text.count("f(x)") == text.count("y =") == 2  # noqa: E731
    assert made(before, make, needed) == before


@pytest.mark.parametrize(
    "before",
    [
        "for x in [1, 2]:\n    if x:\n        break\n",
        "for x in [1, 2]:\n    f(x)\nelse:\n    g()\n",
        "for x in [*y, 2]:\n    f(x)\n",
        "for x in [1, 2, 3, 4]:\n    f(x)\n",
        "for x in y:\n    f(x)\n",
    ],
)
def test_other_loops_are_not_unrolled(before: str) -> None:
    assert made(before, unrolled_loops([drop_statements], set()), lambda _: True) == before


def test_unused_parameters_go_with_their_arguments() -> None:
    before = (
        "class A:\n    def __init__(self, a, b, c=3):\n        self.b = b\n\n\n"
        "def go(x, y=1, *, z=2):\n    pass\n\n\nA(1, 2, 3)\nA(1, b=2, c=4)\ngo(x=1)\n"
    )
    after = (
        "class A:\n    def __init__(self, b):\n        self.b = b\n\n\n"
        "def go(*, z=2):\n    pass\n\n\nA(2)\nA(b=2)\ngo()\n"
    )
    assert made(before, rewriting(unused_parameters), lambda _: True) == after


@pytest.mark.parametrize(
    ("script", "after"),
    [
        (b"import pack.rows\nprint(pack.rows.size)\n", b"size = 3\nprint(size)\n"),
        (b"from pack import other, rows\nprint(rows.size)\n", b"size = 3\nfrom pack import other\nprint(size)\n"),
        (
            b"from pack.rows import size\nx = 1\nimport pack.rows as r\nprint(r.size)\n",
            b"size = 3\nx = 1\n\nprint(size)\n",
        ),
        (b"from pack.rows import size as n\nprint(n)\n", b"size = 3\nn = size\nprint(n)\n"),
    ],
)
def test_a_module_is_put_where_it_is_imported(script: bytes, after: bytes) -> None:
    program = Program({"a.py": script, "pack/rows.py": b"size = 3\n"}, "a.py")
    merged, _ = driven(program, merge_modules, lambda _: True)
    assert merged.files == {"a.py": after}


def test_an_instrumented_program_does_what_it_did() -> None:
    text = b"def f(a, *b, c=1):\n    return all(x for x in b) and f'{a}' and [y + c for y in b]\n\n\nr = f(1, *[2, 3], c=4)\nfor q in [r]:\n    q[len(b'')] = r[:1]\n"
    seen: list[Program] = []

    def observe(program: Program) -> None:
        seen.append(program)

    driven(one(text), with_observed_values(observe), lambda _: True)
    names: dict[str, object] = {SEEN: lambda _, value: value}
    exec(compile(seen[0].files["a.py"], "a.py", "exec"), names)
    assert names["r"] == [[6], 7]
    assert seen[0].files["a.py"].count(SEEN.encode()) == 6  # result, call, function, loop, index, slice


def test_a_function_that_a_decorator_has_replaced_is_called_by_its_name() -> None:
    before = "table = {}\n\n\n@register('f')\ndef f():\n    pass\n\n\ntable['f']()\n"
    after = "table = {}\n\n\ndef f():\n    pass\n\n\nf()\n"

    def observe(program: Program) -> dict[int, str]:
        # What is in an expression is computed before it.
        return dict.fromkeys(reversed(range(program.files["a.py"].count(SEEN.encode()))), "@f")

    found = made(before, with_observed_values(observe), lambda text: "table = {}" in text)
    assert found == after


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("table['f']", "f"),
        ("table['other']", "@other"),
        ("[Plain()][0]", "Plain()"),
        ("[Full()][0]", None),
        ("[os.path.join][0]", None),
        ("helper.table[0]", "helper.inner"),
    ],
)
def test_functions_and_objects_are_observed_by_their_names(expression: str, text: str | None, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def inner():\n    pass\n\n\ntable = [inner]\n")
    (tmp_path / "a.py").write_text(
        "import os\nimport helper\ntable = {}\n\n\ndef f():\n    pass\n\n\ndef other():\n    pass\n\n\n"
        "table.update(f=f, other=other)\nother = None\n\n\nclass Plain:\n    pass\n\n\n"
        f"class Full:\n    def __init__(self):\n        self.x = 1\n\n\n{SEEN}(0, ({expression}))\n"
    )
    code = (
        "import runpy, sys; sys.path[:0] = [sys.argv[1], sys.argv[2]]; import trial_server; "
        "trial_server.observe('notes', sys.argv[2] + '/'); runpy.run_path('a.py', run_name='__main__')"
    )
    server = Path(trial_server.__file__).parent
    subprocess.run([sys.executable, "-c", code, str(server), str(tmp_path)], cwd=tmp_path, check=True)
    noted = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    assert [one[:3] for one in noted if one[0] == "="] == [["=", 0, text]]


def test_a_module_with_letters_that_the_other_file_cannot_have_stays() -> None:
    files = {"a.py": b"# coding: latin-1\nimport b\nprint(b.x)\n", "b.py": "x = '€'\n".encode()}
    assert driven(Program(files, "a.py"), merge_modules, lambda _: True)[0].files == files


def test_where_an_argument_of_the_call_that_died_comes_from_is_not_simplified() -> None:
    before = "handle = lib.open(b'name')\nlib.read(handle, 1)\n"
    after = made(before, rewriting(simplified_expressions({"read"})), lambda _: True)
    assert after.startswith("handle = lib.open(")
    assert after.endswith("lib.read(handle, 1)\n")


def test_what_never_ran_goes_in_one_trial() -> None:
    text = "import a\n\n\ndef used():\n    go()\n    if no:\n        never()\n\n\ndef unused():\n    pass\n\n\nused()\n"
    program, _ = driven(one(text.encode()), drop_never_ran({"a.py": {1, 4, 5, 6, 10, 13}}), lambda _: True)
    assert b"never" not in program.files["a.py"]
    assert b"go()" in program.files["a.py"]


def test_a_name_that_nothing_binds_any_more_needs_no_run() -> None:
    before = one(b"import lib\nx = lib.make()\n\ndef f():\n    return x\n\nf()\n")
    assert is_hopeless(one(b"x = lib.make()\n\ndef f():\n    return x\n\nf()\n"), before)
    assert not is_hopeless(one(b"def f():\n    return x\n"), before)  # never called
    assert is_hopeless(one(b"def f(:\n"), before)


def test_types_of_a_function_of_ctypes_that_is_still_called_stay() -> None:
    before = one(b"lib.f.restype = c_void_p\nlib.g.restype = c_int\nlib.f()\n")
    assert is_hopeless(one(b"lib.g.restype = c_int\nlib.f()\n"), before)
    assert not is_hopeless(one(b"lib.f.restype = c_void_p\nlib.f()\n"), before)


@settings(max_examples=50)
@given(st.sets(st.integers(0, 40)), st.integers(0, 40), st.sampled_from([from_the_end, in_parts]))
def test_a_search_ends_with_what_is_needed(needed: set[int], count: int, ranges: Search) -> None:
    things = list(range(count))
    program = Program({"all": bytes(things)}, "all")

    def without(gone: list[int]) -> Program:
        return program.with_file("all", bytes(one for one in things if one not in gone))

    wanted = {one for one in needed if one < count}
    found, _ = driven(
        program, lambda _: search(program, things, ranges, without), lambda one: wanted <= set(one.files["all"])
    )
    assert set(found.files["all"]) == wanted
