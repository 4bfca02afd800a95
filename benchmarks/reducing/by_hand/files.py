import ctypes
import os

library = ctypes.CDLL("./native.so")
library.index_map.argtypes = [ctypes.c_char_p]
library.index_map.restype = ctypes.c_long
library.index_sum.restype = ctypes.c_long
with open("index.bin", "wb") as file:
    file.write(b"x")
library.index_map(b"index.bin")
os.truncate("index.bin", 0)
library.index_sum()
