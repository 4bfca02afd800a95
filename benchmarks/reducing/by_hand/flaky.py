import ctypes

library = ctypes.CDLL("./native.so")
library.cache_limit.argtypes = [ctypes.c_int]
library.cache_put.argtypes = [ctypes.c_int, ctypes.c_int]
library.cache_get.argtypes = [ctypes.c_int]
library.cache_limit(16)
library.cache_put(40, 1)
library.cache_evict()
library.cache_get(40)
