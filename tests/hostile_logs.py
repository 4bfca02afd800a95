"""Texts that were made to hurt their reader: endless streams, for the tests and for the benchmark."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Iterator

from necropsy.formats.phrases import phrases
from necropsy.formats.readers import readers

NOISE = b"2026-11-20 21:17:51.617250: I tensorflow/core/common.cc:356] epoch 12 loss: 0.33 accuracy 0.93\n"
WORDS = tuple(dict.fromkeys(word.encode() for phrase in phrases() for word in (phrase.must, phrase.must[2:6])))


class Source(io.RawIOBase):
    """``size`` bytes of a text that goes on and on."""

    def __init__(self, blocks: Iterator[bytes], size: int) -> None:
        self.blocks, self.left, self.rest = blocks, size, b""

    def read(self, size: int = -1) -> bytes:
        while len(self.rest) < size:
            block = next(self.blocks)
            self.rest += block
        size = min(size, self.left)
        part, self.rest = self.rest[:size], self.rest[size:]
        self.left -= size
        return part


def words() -> list[bytes]:
    triggers = (word.encode() for reader in readers() for word in reader.triggers)
    return list(dict.fromkeys([*WORDS, *triggers]))


def again(unit: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: itertools.repeat(unit * max(1, (1 << 16) // len(unit)))


def all_words(gap: int) -> Callable[[], Iterator[bytes]]:
    def blocks() -> Iterator[bytes]:
        chosen, dice = words(), random.Random(1)
        while True:
            yield b"".join(b"a" * gap + word + b"\n" for word in dice.sample(chosen, len(chosen)))

    return blocks


def one_after_the_other() -> Iterator[bytes]:
    for word in itertools.cycle(words()):
        yield (word + b"\n") * (20_000 // len(word))


TRACEBACK = b'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    f()\nValueError: x\n'
HOSTILE: dict[str, Callable[[], Iterator[bytes]]] = {
    "one line": again(b"a"),
    "empty lines": again(b"\n"),
    "a trigger in every line": again(b"Check failed: x\n"),
    "a trigger everywhere": again(b"Check failed: "),
    "the shortest trigger": again(min(words(), key=len)),
    "nothing but NUL": again(b"\0"),
    "invalid UTF-8": again(b"\xff\xc0\x80\n"),
    "a bar": again(b"\r 12%|##   | 12/100"),
    "returns": again(b"\r"),
    "escapes": again(b"\x1b[mx"),
    "half escapes": again(b"\x1b"),
    "titles without end": again(b"\x1b]0;" + b"a" * 3000),
    "tracebacks": again(TRACEBACK),
    "tracebacks that are chained": again(TRACEBACK + b"\nDuring handling of the above exception, another exception occurred:\n\n"),
    "heads of tracebacks": again(b"Traceback (most recent call last):\n"),
    "heads of groups": again(b"  + Exception Group Traceback (most recent call last):\n"),
    "one traceback": lambda: itertools.chain([b"Traceback (most recent call last):\n"], again(b'  File "a.py", line 3, in f\n')()),
    "heads of dumps": again(b"Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"),
    "fatal lines": again(NOISE.replace(b": I ", b": F ")),
    "all words": all_words(0),
    "all words, apart": all_words(300),
    "each word for a while": one_after_the_other,
    "wrapped": again(b"2023-11-20T21:17:51.1Z [default0]:[rank0]: Check failed: x\n"),
    "json": again(b'{"log":"Check failed: x\\n"}\n'),
    "open json": again(b'{"'),
    "quoted": again(b"> > > "),
    "entities": again(b"&amp;lt;&nbsp;&quot;&#39;"),
    "colours": again(NOISE.replace(b"epoch", b"\x1b[31mepoch\x1b[0m")),
    "random bytes": again(random.Random(1).randbytes(1 << 16)),
    "UTF-16": lambda: itertools.chain([b"\xff\xfe"], again(NOISE.decode().encode("utf-16-le"))()),
    "Windows' line ends": again(NOISE.replace(b"\n", b"\r\n")),
    "a log": lambda: itertools.repeat(NOISE * 9000 + TRACEBACK),
    "wide characters": again("Check failed: \U0001f600 é\n".encode()),
}  # fmt: skip
