import ctypes


class Node(ctypes.Structure):
    """As the library has it."""


Node._fields_ = [("parent", ctypes.POINTER(Node)), ("x", ctypes.c_double), ("y", ctypes.c_double)]
library = ctypes.CDLL("./native.so")
library.position.argtypes = [ctypes.POINTER(Node), ctypes.c_int]
library.position.restype = ctypes.c_double
node = Node()
node.parent = ctypes.pointer(node)
library.position(ctypes.byref(node), 0)
