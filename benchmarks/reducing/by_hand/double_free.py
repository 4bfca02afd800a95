import ctypes

loaded = ctypes.CDLL("./native.so")
loaded.buffer_new.argtypes = [ctypes.c_int]
loaded.buffer_new.restype = ctypes.c_void_p
loaded.buffer_release.argtypes = [ctypes.c_void_p]
handle = loaded.buffer_new(512)
loaded.buffer_release(handle)
loaded.buffer_release(handle)
