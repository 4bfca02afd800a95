import ctypes

library = ctypes.CDLL("./native.so")
library.device_open.argtypes = [ctypes.c_char_p]
library.device_open.restype = ctypes.c_void_p
library.device_configure.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
library.device_read.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
library.device_close.argtypes = [ctypes.c_void_p]
handle = library.device_open(b"left")
library.device_configure(handle, b"mode", 1)
library.device_close(handle)
library.device_read(handle, ctypes.create_string_buffer(16), 16)
