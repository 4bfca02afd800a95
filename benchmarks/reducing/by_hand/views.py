import ctypes

import numpy as np

LIBRARY = ctypes.CDLL("./native.so")
DOUBLES = ctypes.POINTER(ctypes.c_double)
LIBRARY.resample.argtypes = [DOUBLES, ctypes.POINTER(ctypes.c_long), ctypes.c_long, DOUBLES]
signal = np.zeros(2)
places = np.ones(2)
LIBRARY.resample(
    signal.ctypes.data_as(DOUBLES), places.ctypes.data_as(ctypes.POINTER(ctypes.c_long)), 2, signal.ctypes.data_as(DOUBLES)
)
