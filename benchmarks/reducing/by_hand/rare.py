import ctypes

library = ctypes.CDLL("./native.so")
library.ring_start.argtypes = [ctypes.c_int]
library.ring_push.argtypes = [ctypes.c_int]
library.ring_start(1)
library.ring_push(1)
