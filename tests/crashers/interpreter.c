// Flags: -O0 (with Python's headers)
#include <Python.h>

void fatal_error(void) { Py_FatalError("the cache is gone"); }  // called with the GIL
void error_without_gil(void) { PyErr_Occurred(); }              // ctypes.CDLL has released it
