import ctypes


class Image(ctypes.Structure):
    _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int), ("channels", ctypes.c_int)]


library = ctypes.CDLL("./native.so")
library.checksum.argtypes = [ctypes.POINTER(Image), ctypes.c_char_p, ctypes.c_long]
library.checksum.restype = ctypes.c_long
library.checksum(Image(1, 1, 1), b"", 0)
