"""A child made by fork dies, its parent ends well."""

import ctypes
import os
import sys

library = ctypes.CDLL(sys.argv[1])
child = os.fork()
if child == 0:
    library.null_read()  # the line
os.waitpid(child, 0)
