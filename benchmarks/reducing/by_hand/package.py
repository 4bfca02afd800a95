# inventory/packing.py: the signature of this death has the file and the function
import ctypes


def put():
    buffer = ctypes.create_string_buffer(16)
    ctypes.memmove(ctypes.addressof(buffer) + 16_000_000_000_000, b"A0250", 5)


# inventory/__main__.py
from inventory import packing

packing.put()
