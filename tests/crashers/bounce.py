"""A recursion through Python and C by turns."""

import ctypes
import sys

sys.setrecursionlimit(10**6)
library = ctypes.PyDLL(sys.argv[1])
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def again(n: int) -> int:
    return int(library.bounce(back, n))  # the line


back = Callback(again)
again(0)
