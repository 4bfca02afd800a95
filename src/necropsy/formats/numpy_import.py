"""The generation of NumPy's C interface that a library was compiled for, by the module that it imports.

``import_array`` of NumPy 1.x's headers imports ``numpy.core._multiarray_umath``; that of NumPy 2's imports
``numpy._core._multiarray_umath`` and, where it is not there, the other one: such a library works with both.
"""

from __future__ import annotations

ONE, TWO = b"numpy.core._multiarray_umath", b"numpy._core._multiarray_umath"
