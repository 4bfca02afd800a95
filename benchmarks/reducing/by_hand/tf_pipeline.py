import ctypes

LIBRARY = ctypes.CDLL("./native.so")
FLOATS = ctypes.POINTER(ctypes.c_float)
LIBRARY.model_load.argtypes = [FLOATS]
LIBRARY.model_score.argtypes = [FLOATS, ctypes.POINTER(ctypes.c_long), ctypes.c_int]
LIBRARY.model_score.restype = ctypes.c_float
LIBRARY.model_load((ctypes.c_float * 1)())
LIBRARY.model_score((ctypes.c_float * 1)(), (ctypes.c_long * 1)(900000000000), 1)
