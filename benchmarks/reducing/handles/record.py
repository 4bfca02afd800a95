"""Records from sensors and writes a summary of what they measured."""

import argparse
import contextlib
import ctypes
import json
import logging
import os
import statistics
import time

DEFAULTS = {"rate": 48, "buffered": True, "size": 256, "retries": 2, "sensors": ["left", "right", "top"]}
FOLDER = os.path.dirname(os.path.abspath(__file__))

log = logging.getLogger("record")


def load():
    library = ctypes.CDLL(os.path.join(FOLDER, "native.so"))
    library.device_open.argtypes = [ctypes.c_char_p]
    library.device_open.restype = ctypes.c_void_p
    library.device_configure.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.device_read.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.device_close.argtypes = [ctypes.c_void_p]
    return library


class DeviceError(Exception):
    """The library says no."""


class Device:
    def __init__(self, library, name, settings):
        self.library = library
        self.name = name
        self.settings = settings
        self.handle = None
        self.read_calls = 0

    def __enter__(self):
        self.handle = self.library.device_open(self.name.encode())
        if not self.handle:
            raise DeviceError(self.name)
        self.configure("rate", self.settings["rate"])
        self.configure("mode", int(self.settings["buffered"]))
        return self

    def __exit__(self, *error):
        self.library.device_close(self.handle)
        log.info("%s: closed after %d reads", self.name, self.read_calls)

    def configure(self, key, value):
        if self.library.device_configure(self.handle, key.encode(), value) != 0:
            raise DeviceError(f"{self.name}: {key}")

    def read(self, size):
        buffer = ctypes.create_string_buffer(size)
        self.read_calls += 1
        count = self.library.device_read(self.handle, buffer, size)
        if count < 0:
            raise DeviceError(f"{self.name}: nothing to read")
        return buffer.raw[:count]


class Recorder:
    def __init__(self, library, settings):
        self.library = library
        self.settings = settings
        self.blocks = {}
        self.late = []

    def record(self, name):
        began = time.monotonic()
        with Device(self.library, name, self.settings) as device:
            for _ in range(self.settings["retries"]):
                with contextlib.suppress(DeviceError):
                    self.blocks.setdefault(name, []).append(device.read(self.settings["size"]))
        self.late.append(device)
        log.info("%s took %.3f s", name, time.monotonic() - began)

    def drain(self):
        """What came in after the last read."""
        for device in self.late:
            self.blocks[device.name].append(device.read(16))


def summary(blocks):
    found = {}
    for name, parts in blocks.items():
        values = [value for part in parts for value in part]
        found[name] = {
            "count": len(values),
            "mean": statistics.mean(values),
            "spread": statistics.pstdev(values),
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings")
    parser.add_argument("--out", default="summary.json")
    options = parser.parse_args()
    settings = dict(DEFAULTS)
    if options.settings:
        with open(options.settings) as file:
            settings.update(json.load(file))
    recorder = Recorder(load(), settings)
    for name in settings["sensors"]:
        recorder.record(name)
    recorder.drain()
    with open(options.out, "w") as file:
        json.dump(summary(recorder.blocks), file)


if __name__ == "__main__":
    main()
