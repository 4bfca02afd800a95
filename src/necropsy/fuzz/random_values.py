"""Values drawn at random, for what the tables of boundary values do not have: any number, any text, any mixture."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from necropsy.fuzz.boundaries import MOST_ELEMENTS
from necropsy.fuzz.recipes import COMPLEX, FLOATS, INTEGERS, QUANTIZED, Fill, Item, Tensor

_CHARACTERS = "ab01 ,.:;-+*/%=()[]{}<>'\"\\\n\0\x7f\xe9\xff"
_LONGEST = 40
_MOST_ITEMS = 8
_MOST_SIZE_BITS = 12


def integer(random: Random, dtype: str, known: Sequence[int] = ()) -> int:
    """A whole number of a type: near a known one, small, or of any length, each about as often."""
    low, high = INTEGERS[QUANTIZED.get(dtype, dtype)]
    way = random.random()
    if known and way < 0.3:
        one = random.choice(known)
        found = random.choice((one + random.randint(-3, 3), 2 * one, one // 2, -one))
    elif way < 0.6:
        found = random.randint(-16, 300)
    else:
        found = random.getrandbits(random.randint(1, high.bit_length())) * random.choice((1, 1, -1))
    return min(max(found, low), high)


def number(random: Random, known: Sequence[int] = ()) -> float:
    """A floating-point number: whole, between 0 and 1, or of any magnitude that float32 has."""
    way = random.random()
    if way < 0.4:
        return float(integer(random, "int32", known))
    if way < 0.6:
        return random.random()
    return random.choice((1, -1)) * random.uniform(1, 10) * 10.0 ** random.randint(-38, 37)


def text(random: Random, known: Sequence[str] = ()) -> str:
    """A short text, new or made from a known one."""
    if known and random.random() < 0.5:
        one = random.choice(known)
        at = random.randint(0, len(one))
        return random.choice((one[:at] + random.choice(_CHARACTERS) + one[at:], one[:at], one[at:] + one[:at], one * 2))
    return "".join(random.choice(_CHARACTERS) for _ in range(random.randint(0, _LONGEST)))


def fill(random: Random, one: Tensor, numbers: Sequence[int] = (), texts: Sequence[str] = ()) -> Fill:
    """Other elements for a tensor."""

    def item() -> Item:
        if one.dtype == "bool":
            return random.random() < 0.5
        if one.dtype == "string":
            return _latin(text(random, texts)), 1
        if one.dtype in FLOATS or one.dtype in COMPLEX:
            return number(random, numbers)
        return integer(random, one.dtype, numbers)

    many = min(one.size, random.randint(1, _MOST_ITEMS))
    return ("cycle", tuple(item() for _ in range(many))) if many > 1 else ("same", (item(),))


def shape(random: Random, one: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape: one size of any length, or every size small."""
    if one and random.random() < 0.6:
        at = random.randrange(len(one))
        found = (*one[:at], _size(random), *one[at + 1 :])
    else:
        found = tuple(random.randint(0, 9) for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4, 5))))
    return found if Tensor("int8", found).size <= MOST_ELEMENTS else one


def _size(random: Random) -> int:
    return random.getrandbits(random.randint(1, _MOST_SIZE_BITS))


def attribute(random: Random, kind: str, numbers: Sequence[int] = (), texts: Sequence[str] = ()) -> Any:
    """A value of an attribute; None for a type of which none is drawn at random."""
    if kind.startswith("list("):
        several = [attribute(random, kind[5:-1], numbers, texts) for _ in range(random.randint(0, _MOST_ITEMS))]
        return None if None in several else several
    match kind:
        case "int":
            return integer(random, "int64" if random.random() < 0.3 else "int32", numbers)
        case "float":
            return number(random, numbers)
        case "string":
            return text(random, texts)
        case "bytes":
            return {"bytes": _latin(text(random, texts)), "times": 1}
        case "shape":
            return list(shape(random, ()))
        case _:
            return None


def _latin(one: str) -> str:
    return one.encode("latin-1", "replace").decode("latin-1")
