"""Shapes and values on the borders of what code expects: by type, and from the sizes of the other inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from necropsy.fuzz.recipes import COMPLEX, FLOATS, INTEGERS, QUANTIZED, Fill, Tensor

SIMPLE_SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (3,), (2, 3), (1,), (4, 4), (2, 3, 4), (1, 4, 4, 3), (8,), (0,), (1, 1)),
)
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000)
LARGE_SIZES = (1023, 1024, 4096, 65_537, 100_000, 1_000_000)
HUGE_EMPTY: tuple[tuple[int, ...], ...] = ((0, 1 << 31), (1 << 31, 0), (0, 1 << 40), (1 << 20, 0, 1 << 20))
MOST_ELEMENTS = 2_000_000
"""Of all inputs of a call."""
LARGE = 1 << 16
"""Elements of all inputs from which a call is large: it takes time, and a copy of them may not fit on a small stack."""
_NUMBERS = (
    *(-1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100, 127, 128, 255, 256, 1000, 1024, 32_767, 32_768, 46_340),
    *(46_341, 65_535, 65_536, 100_000, 1_000_000, 16_777_216, 300_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    *(1 << 32, 1 << 40, (1 << 62), -2, -3, -100, -1_000_000, -(1 << 31), -(1 << 31) - 1, -(1 << 40)),
)
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-45,
    1e9,
    float(1 << 31),
    -1e9,
    1e30,
    float("inf"),
    float("-inf"),
    float("nan"),
)
_WORDS = (
    *("", "a", "1", "0", "-1", "1,2", "1 2 3", "a b", "(1)", "[1]", "()", "(()())", "0:1", "a=b", "x", " ", "\n", "A"),
    *("%s%n", "\0", "a\0b", "\xff\xfe", "9999999999", "99999999999999999999", "-2147483649", "1e400", "nan", "{}", '"'),
    "UTF-8",
)
_REPEATED = ("(", "a", "1", "[", "1,", "a ", "(1", "-", "{", "9")
_LENGTHS = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 511, 1024, 4096, 10_000, 100_000, 1_000_000)


def integers(dtype: str, more: Iterable[int] = ()) -> list[int]:
    """Whole numbers of a type, the likeliest to matter first; ``more`` come before the general ones."""
    low, high = INTEGERS[QUANTIZED.get(dtype, dtype)]
    return list(
        dict.fromkeys(one for one in (*more, -1, high, low, *_NUMBERS, high - 1, low + 1) if low <= one <= high)
    )


def words(more: Iterable[str] = ()) -> list[tuple[str, int]]:
    """Texts: short ones, then long ones by their repeated part."""
    long = [(unit, length) for length in _LENGTHS for unit in _REPEATED[: 10 if length in {100_000, 256} else 3]]
    return list(dict.fromkeys([*((one, 1) for one in (*more, *_WORDS)), *long]))


def plain(dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor that most ops can do with."""
    if dtype == "string":
        return Tensor(dtype, shape, "same", (("1", 1),))
    if dtype == "bool":
        return Tensor(dtype, shape, "same", (True,))
    if dtype in FLOATS or dtype in COMPLEX:
        return Tensor(dtype, shape, "same", (1.0,))
    return Tensor(dtype, shape, "same", (1,))


def fills(one: Tensor, numbers: Sequence[int] = (), texts: Sequence[str] = ()) -> list[Fill]:
    """The kinds and the items of other elements; ``numbers``: sizes of the other inputs, and what they are next to."""
    found: list[Fill]
    if one.dtype == "bool":
        return [("same", (False,)), ("same", (True,)), ("cycle", (True, False))]
    if one.dtype == "string":
        found = _same(words(texts))
        if one.size > 1:
            found.append(("cycle", (("a", 1), ("", 1), ("a", 100))))
        return found
    if one.dtype in FLOATS or one.dtype in COMPLEX:
        found = [*_same((*_FLOATS, *map(float, numbers))), ("ramp", (0, 1)), ("cycle", (1.0, float("nan"), -1.0))]
        if one.dtype in FLOATS:
            found.append(("random", (1, -10.0, 10.0)))
        return found
    found = [("same", (0,)), ("ramp", (0, 1))]
    for value in integers(one.dtype, numbers):
        found.append(("same", (value,)))
        if 1 < one.size <= 16:
            # Only the last element is odd: what is checked by the first one passes.
            found.append(("cycle", (*(0,) * (one.size - 1), value)))
    if one.size > 1:
        found.append(("cycle", (1, 0)))
        if INTEGERS[QUANTIZED.get(one.dtype, one.dtype)][0]:
            found.append(("ramp", (one.size - 1, -1)))
        found += [("ramp", (1, 1)), ("random", (1, 0, 8))]
    return found


def _same(items: Iterable[Any]) -> list[Fill]:
    return [("same", (one,)) for one in items]


def shapes(
    one: tuple[int, ...], others: Sequence[tuple[int, ...]], sizes: Sequence[int] = ()
) -> Iterator[tuple[int, ...]]:
    """Other shapes for an input of shape ``one``; ``others``: those of the other inputs; ``sizes``: more to try."""
    found: dict[tuple[int, ...], None] = dict.fromkeys(SIMPLE_SHAPES)
    found |= dict.fromkeys(others)
    found |= {(*one, 1): None, (1, *one): None, (*one, 2): None, one[1:]: None, one[:-1]: None}
    for at, size in enumerate(one):
        for other in (*SIZES, *(size - 1, size + 1, 2 * size), *LARGE_SIZES, *sizes):
            found[(*one[:at], max(0, other), *one[at + 1 :])] = None
    found |= {tuple([1] * rank): None for rank in range(5, 9)}
    found |= {tuple([2] * rank): None for rank in range(3, 7)}
    found |= dict.fromkeys(HUGE_EMPTY)
    if len(one) == 0:
        found |= {(size,): None for size in (*SIZES, *LARGE_SIZES, *sizes)}
    found.pop(one, None)
    for shape in found:
        if Tensor("int8", shape).size <= MOST_ELEMENTS:
            yield shape


def near(sizes: Iterable[int]) -> list[int]:
    """What an index, a split or a length may be compared with: each size, its neighbours, its negative, its square."""
    found: dict[int, None] = {}
    for size in sizes:
        found |= dict.fromkeys((size, size - 1, size + 1, -size, -size - 1, size * size))
    return list(found)


def attribute_values(kind: str, minimum: int | None, allowed: Sequence[str], numbers: Sequence[int]) -> list[Any]:
    """Values of an attribute: legal ones, those on the borders, and some that are not allowed.

    ``minimum``: the least value; of a list, its least length.
    """
    inner = kind[5:-1] if kind.startswith("list(") else kind
    if inner != kind:
        return _lists(attribute_values(inner, None, allowed, numbers), minimum or 0)
    single: list[Any]
    match inner:
        case "int":
            single = [
                *dict.fromkeys((*(() if minimum is None else (minimum, minimum + 1)), *integers("int64", numbers)))
            ]
        case "float":
            single = list(_FLOATS)
        case "bool":
            single = [True, False]
        case "string":
            single = [*allowed, *("" if allowed else _WORDS[:12])] or ["a"]
        case "bytes":
            single = [{"bytes": unit, "times": times} for unit, times in words()]
        case "type":
            single = [{"type": one} for one in (*allowed, *(() if allowed else ("float32", "int32", "string", "bool")))]
        case "shape":
            single = [[], [1], [2, 3], [0], [3], [-1], [1 << 31], [1, 2, 3, 4], [46_341, 46_341]]
        case _:
            return []
    return single


def _lists(single: Sequence[Any], least: int) -> list[Any]:
    """Lists of these values: of the least length that is allowed, of 4 and of 2, and one that is too short."""
    few = list(single[:16])
    long = max(4, least)
    found = [
        *([one] * max(1, least) for one in few),
        [],
        *([one] * long for one in few[:6]),
        *([one] * max(2, least) for one in few[:3]),
        [*few[:3], *few[:1] * max(0, least - 3)],
    ]
    for at in range(long if few else 0):  # one element is different
        found += [[*[few[0]] * at, one, *[few[0]] * (long - at - 1)] for one in few[1:4]]
    return found
