"""Native code starts a thread that uses Python without the GIL; before CPython 3.12 it lives where the GIL is held."""

import ctypes
import time

python = ctypes.PyDLL(None)  # it keeps the GIL while it calls
thread = ctypes.c_ulong()
python.pthread_create(ctypes.byref(thread), None, ctypes.cast(python.PyErr_Occurred, ctypes.c_void_p), None)
time.sleep(0.05)
