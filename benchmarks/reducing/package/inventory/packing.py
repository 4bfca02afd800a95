"""Blocks of memory that the label printer takes."""

import contextlib
import ctypes


class Block:
    def __init__(self, size):
        self.size = size
        self.buffer = ctypes.create_string_buffer(size)
        self.used = 0

    def put(self, text):
        data = text.encode()
        ctypes.memmove(ctypes.addressof(self.buffer) + self.used, data, len(data))
        self.used += len(data)

    def text(self, length):
        return ctypes.string_at(self.buffer, length)


@contextlib.contextmanager
def block(size):
    made = Block(size)
    try:
        yield made
    finally:
        made.used = 0
