import ctypes
import threading

library = ctypes.CDLL("./native.so")
library.plan_apply.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_double), ctypes.c_int]
library.plan_apply.restype = ctypes.c_double
worker = threading.Thread(target=library.plan_apply, args=(None, (ctypes.c_double * 1)(), 1))
worker.start()
worker.join()
