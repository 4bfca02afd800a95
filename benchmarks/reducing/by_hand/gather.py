import ctypes

LIBRARY = ctypes.CDLL("./native.so")
LIBRARY.install.argtypes = [ctypes.POINTER(ctypes.c_int)]
LIBRARY.gather.argtypes = [ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int]
LIBRARY.gather.restype = ctypes.c_long
LIBRARY.install((ctypes.c_int * 1)())
LIBRARY.gather((ctypes.c_int * 1)(900000000), 1, 1)
