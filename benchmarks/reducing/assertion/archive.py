"""The archive: a header, then records with a length each."""

import io
import struct

MAGIC = b"IMGS"
HEADER = struct.Struct("<4sHH")
RECORD = struct.Struct("<HHBBI")


class ArchiveError(Exception):
    pass


class Record:
    def __init__(self, width, height, channels, flags, payload):
        self.width = width
        self.height = height
        self.channels = channels
        self.flags = flags
        self.payload = payload

    @property
    def area(self):
        return self.width * self.height

    @property
    def is_preview(self):
        return bool(self.flags & 1)


def read(data):
    stream = io.BytesIO(data)
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        raise ArchiveError("no header")
    magic, version, count = HEADER.unpack(head)
    if magic != MAGIC:
        raise ArchiveError("no archive")
    if version > 3:
        raise ArchiveError("too new")
    records = []
    for _ in range(count):
        part = stream.read(RECORD.size)
        if len(part) < RECORD.size:
            break
        width, height, channels, flags, length = RECORD.unpack(part)
        records.append(Record(width, height, channels, flags, stream.read(length)))
    return records
