"""Merges documents; their texts lie in buffers of the library."""

import argparse
import ctypes
import hashlib
import logging
import os
import re

LIMITS = {"size": 512, "words": 40, "share": True}
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so")
WORD = re.compile(r"\w+")

log = logging.getLogger("merge")


def library():
    loaded = ctypes.CDLL(PATH)
    loaded.buffer_new.argtypes = [ctypes.c_int]
    loaded.buffer_new.restype = ctypes.c_void_p
    loaded.buffer_write.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    loaded.buffer_share.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    loaded.buffer_release.argtypes = [ctypes.c_void_p]
    return loaded


class Buffer:
    def __init__(self, loaded, size):
        self.loaded = loaded
        self.handle = loaded.buffer_new(size)
        self.size = size

    def write(self, text):
        self.loaded.buffer_write(self.handle, text.encode()[: self.size - 1])

    def share(self, other):
        self.loaded.buffer_share(self.handle, other.handle)

    def release(self):
        if self.handle:
            self.loaded.buffer_release(self.handle)
        self.handle = None


class Document:
    def __init__(self, name, text, buffer):
        self.name = name
        self.text = text
        self.buffer = buffer
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.buffer.write(text)

    @property
    def words(self):
        return [word.lower() for word in WORD.findall(self.text)]

    def __repr__(self):
        return f"<{self.name}: {len(self.words)} words>"


class Merger:
    def __init__(self, loaded):
        self.loaded = loaded
        self.documents = []
        self.known = {}

    def add(self, name, text):
        document = Document(name, text, Buffer(self.loaded, LIMITS["size"]))
        same = self.known.get(document.digest)
        if same is not None and LIMITS["share"]:
            log.info("%r is %r", document, same)
            same.buffer.share(document.buffer)
        else:
            self.known[document.digest] = document
        self.documents.append(document)

    def close(self):
        for document in self.documents:
            document.buffer.release()
        self.documents.clear()

    def common(self):
        sets = [set(document.words) for document in self.documents]
        return set.intersection(*sets) if sets else set()


def read(path):
    name, lines = None, []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("== "):
                if name is not None:
                    yield name, "".join(lines)
                name, lines = line[3:].strip(), []
            else:
                lines.append(line)
    if name is not None:
        yield name, "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--top", type=int, default=5)
    options = parser.parse_args()
    merger = Merger(library())
    for name, text in read(options.file):
        merger.add(name, text)
    print("common:", sorted(merger.common())[: options.top])
    merger.close()


if __name__ == "__main__":
    main()
