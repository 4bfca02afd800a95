"""Verifies the images of an archive."""

import argparse
import ctypes
import logging
import pathlib
import sys

import archive

SETTINGS = {"limit": 100, "previews": False, "shown": 3}

log = logging.getLogger("verify")


class Image(ctypes.Structure):
    _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int), ("channels", ctypes.c_int)]


class Verifier:
    def __init__(self, library):
        self.library = library
        self.library.checksum.argtypes = [ctypes.POINTER(Image), ctypes.c_char_p, ctypes.c_long]
        self.library.checksum.restype = ctypes.c_long
        self.sums = []
        self.skipped = 0

    def verify(self, record):
        if record.is_preview and not SETTINGS["previews"]:
            self.skipped += 1
            return
        image = Image(record.width, record.height, record.channels)
        value = self.library.checksum(image, record.payload, len(record.payload))
        log.info("%d x %d: %x", record.width, record.height, value)
        self.sums.append(value)

    def result(self):
        total = 0
        for value in self.sums:
            total = (total * 33 + value) % (1 << 32)
        return total


def largest(records):
    best = None
    for record in records:
        if best is None or record.area > best.area:
            best = record
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--limit", type=int, default=SETTINGS["limit"])
    options = parser.parse_args()
    try:
        records = archive.read(options.archive.read_bytes())
    except archive.ArchiveError as error:
        print("cannot read it:", error, file=sys.stderr)
        return 2
    top = largest(records)
    if top is not None:
        print("largest:", top.width, top.height)
    verifier = Verifier(ctypes.CDLL(str(pathlib.Path(__file__).resolve().parent / "native.so")))
    for record in records[: options.limit]:
        verifier.verify(record)
    print(f"{verifier.result():08x}, {verifier.skipped} previews")
    return 0


if __name__ == "__main__":
    sys.exit(main())
