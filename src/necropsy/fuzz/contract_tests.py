"""Writes a broken promise that kills nobody as a pytest file: results that differ, and inputs that are changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.target import gradients
from necropsy.fuzz.target.comparing import FILLS
from necropsy.fuzz.test_writer import MARK, Source, arguments_of, lines_of, quoted, test_name


def text_of(
    rule: str, op: str, recipe: Recipe, *, headline: str, source: Source, place: Path, names: Sequence[str] = ()
) -> str:
    """The file's text, for the finding of ``rule``.

    ``names``: the inputs that the call changes, or the one whose gradient is wrong.
    """
    imports, top, made = lines_of(source, place, recipe)
    of_test = _OF_RULE[rule]
    call = test_name(op).replace("test_", "call_", 1) if of_test.body else test_name(op)
    head = [f'"""{quoted(headline)}', "", f"{MARK}. {of_test.passes}", '"""', ""]
    frameworks = [one for one in imports if one.rpartition(" ")[2] in {"np", "tf", "torch"}]
    standard = {one for one in imports if one and one not in frameworks} | set(of_test.imports)
    lines = [
        *(*head, *sorted(standard, key=lambda one: (one.startswith("from"), one)), *([""] if standard else [])),
        *(() if of_test.has_child else (*frameworks, "")),
        *([*top, ""] if top else ()),
        "",
        f"def {call}():",
        *((*(f"    {one}" for one in frameworks), "") if of_test.has_child and frameworks else ()),
        f"    {made}",
        arguments_of(recipe),
        *of_test.after.format(function=recipe.function, rule=rule, names=list(names)).splitlines(),
    ]
    if of_test.body:
        lines += [
            "",
            "",
            f"def {test_name(op)}():",
            *of_test.body.format(rule=rule, fills=FILLS, call=call).splitlines(),
        ]
    lines += of_test.helper.splitlines()
    if of_test.has_child:
        lines += ["", "", 'if __name__ == "__main__":', f"    {call}()"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class _Test:
    """What the tests of one rule have besides the call: texts with ``{function}``, ``{rule}`` and ``{call}``."""

    passes: str
    after: str
    """The lines that make the call and judge it, after its arguments."""
    helper: str = ""
    body: str = ""
    """The lines of the test, if the call is in a function of its own."""
    has_child: bool = False
    """That function runs in a process of its own."""
    imports: tuple[str, ...] = ()


_SAME = """

def is_same(one, other):
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.kind in "fc":
        return one.shape == other.shape and np.allclose(one, other, rtol=1e-3, equal_nan=True)
    return np.array_equal(one, other)
"""
_SHOWN = """

def shown(result):
    if isinstance(result, (list, tuple)):
        return [shown(one) for one in result]
    result = result.numpy() if hasattr(result, "numpy") else result
    return result.tolist() if hasattr(result, "tolist") else result
"""
_CHILDREN = """\
    import pytest

    necropsy = shutil.which("necropsy")
    if necropsy is None:
        pytest.skip("necropsy is not on PATH, and its guard sets the bytes that new memory holds")
    printed = []
    for fill in {fills}:
        with tempfile.TemporaryDirectory() as folder:
            variables = {{
                **os.environ,
                "NECROPSY_OUTPUT": folder,
                "NECROPSY_GUARD": f"disarmed,small=1,large=1,fill={{fill}}",
            }}
            words = [necropsy, "run", "--guard", "--quiet", "--", sys.executable, __file__]
            done = subprocess.run(words, env=variables, capture_output=True, text=True)
        if done.returncode == 125:
            pytest.skip("necropsy cannot run it: " + (done.stderr.strip().splitlines() or ["no reason given"])[0])
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1], "{rule}: the result changes with the bytes in new memory"
"""
_SHAPES = """\
    try:
        made = tf.nest.flatten({call}())
        with tf.Graph().as_default():
            inferred = [one.shape for one in tf.nest.flatten({call}())]
    except Exception as error:
        print(error)  # a proper refusal
        return
    for one, other in zip(inferred, made):
        assert one.is_compatible_with(other.shape), f"{rule}: {{one}} is inferred, and it is {{other.shape}}"
"""
_GRADIENT = f"""\
    # Other elements: most functions are defined and smooth there.
    (name,) = {{names!r}}
    random = np.random.RandomState({gradients.POINTS[0]})
    for one, value in arguments.items():
        if tf.is_tensor(value) and value.dtype in (tf.float32, tf.float64) and value.shape.num_elements() <= {gradients.LARGEST}:
            arguments[one] = tf.constant(random.uniform({gradients.LOW}, {gradients.HIGH}, value.shape), value.dtype)
    point = arguments[name]
    random = np.random.RandomState({gradients.POINTS[0] + gradients.DIRECTION})
    direction = tf.constant(random.uniform(-1, 1, point.shape), point.dtype)
    step = {gradients.STEPS["float32"]} if point.dtype == tf.float32 else {gradients.STEPS["float64"]}

    def weighted(one):
        weights = tf.reshape(tf.cos(tf.cast(tf.range(tf.size(one)), tf.float64)), one.shape)
        return tf.reduce_sum(tf.cast(one, tf.float64) * weights)

    def total(at):
        results = tf.nest.flatten({{function}}(**{{{{**arguments, name: at}}}}))
        return tf.add_n([weighted(one) for one in results if one.dtype == point.dtype])

    try:
        with tf.GradientTape() as tape:
            tape.watch(point)
            value = total(point)
    except Exception as error:
        print(error)  # a proper refusal
        return
    gradient = float(tf.reduce_sum(tf.convert_to_tensor(tape.gradient(value, point)) * direction))
    difference = float(total(point + step / 2 * direction) - total(point - step / 2 * direction)) / step
    wrong = f"{{rule}}: the gradient gives {{{{gradient}}}}, and the result changes by {{{{difference}}}}"
    assert abs(gradient - difference) <= {gradients.WRONG} * max(abs(gradient), abs(difference)), wrong
"""  # noqa: E501 - a line of the test
_REPEATED = _Test(
    passes="The test passes once the same call gives the same result.",
    after="""\
    try:
        first = {function}(**arguments)
    except Exception as error:
        print(error)  # a proper refusal
        return
    for _ in range(50):
        assert is_same(first, {function}(**arguments)), "{rule}: the same call gives different results"
""",
    helper=_SAME,
)
_OF_RULE = {
    "op-uninitialised-read": _Test(
        passes="The test passes once the result no longer changes with the bytes that new memory holds.",
        after="""\
    ctypes.CDLL(None).necropsy_guard_arm(-1)  # it fills new memory from now on
    try:
        result = {function}(**arguments)
    except Exception as error:
        result = str(error)  # a proper refusal
    print(shown(result))
""",
        helper=_SHOWN,
        body=_CHILDREN,
        has_child=True,
        imports=tuple(f"import {one}" for one in ("ctypes", "os", "shutil", "subprocess", "sys", "tempfile")),
    ),
    "op-shape-function-wrong": _Test(
        passes="The test passes once the output has the shape that the op's shape function infers.",
        after="    return {function}(**arguments)\n",
        body=_SHAPES,
    ),
    "op-gradient-wrong": _Test(
        passes="The test passes once the gradient is the derivative of the result.", after=_GRADIENT
    ),
    "op-nondeterministic": _REPEATED,
    "data-race": _REPEATED,
    "op-input-modified": _Test(
        passes="The test passes once the inputs are the same after the call.",
        after="""\
    inputs = tf.nest.flatten([arguments[name] for name in {names!r}])
    before = [one.numpy() for one in inputs]
    try:
        {function}(**arguments)
    except Exception as error:
        print(error)  # a proper refusal
    for one, other in zip(before, inputs):
        assert np.array_equal(one, other.numpy()), "{rule}: the call changes its inputs"
""",
    ),
}
