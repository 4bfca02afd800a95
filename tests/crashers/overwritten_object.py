"""A silent overflow of the heap: the type of an object is overwritten, and the garbage collector finds it much later."""

import ctypes
import gc

victims = [[index] for index in range(1000)]
ctypes.memset(id(victims[500]) + 8, 0x41, 8)  # behind the reference count lies the type
gc.collect()
