import ctypes

LONGS = ctypes.POINTER(ctypes.c_long)
LIBRARY = ctypes.CDLL("./native.so")
LIBRARY.confusion_start.argtypes = [LONGS, ctypes.c_long]
LIBRARY.confusion_add.argtypes = [LONGS, LONGS, ctypes.c_int]
LIBRARY.confusion_start((ctypes.c_long * 25)(), 5)
LIBRARY.confusion_add((ctypes.c_long * 1)(900000000000), (ctypes.c_long * 1)(), 1)
