"""Real deaths whose last function is Python's or NumPy's own: who did it, as far as that can be known.

Each has a neighbour that looks alike and keeps its verdict.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from live import compiled, python, report_of, told, verdict_of

import needs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")

SOURCE = """
    #include <Python.h>
    static PyObject *null_read(PyObject *self, PyObject *one) { return PyLong_FromLong(*(volatile int *)NULL); }
    static PyObject *without_type(PyObject *self, PyObject *one) { Py_SET_TYPE(one, NULL); Py_RETURN_NONE; }
    static PyObject *ask_nobody(PyObject *self, PyObject *one) {
        PyObject *volatile nobody = NULL;
        return PyObject_GetAttrString(nobody, "name");
    }
    static PyObject *free_twice(PyObject *self, PyObject *one) {
        void *volatile block = malloc(40);
        free(block);
        free(block);
        Py_RETURN_NONE;
    }
    static PyMethodDef methods[] = {
        {"null_read", null_read, METH_O}, {"without_type", without_type, METH_O},
        {"ask_nobody", ask_nobody, METH_O}, {"free_twice", free_twice, METH_O}, {0}};
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "ext", 0, -1, methods};
    PyMODINIT_FUNC PyInit_ext(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def ext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an extension of the user's own."""
    folder = tmp_path_factory.mktemp("own")
    include = sysconfig.get_paths()["include"]
    compiled(SOURCE, folder / "ext.so", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}")
    return folder


def death(code: str, folder: Path, ext: Path | None = None) -> dict[str, Any]:
    path = f"import sys; sys.path.insert(0, {str(ext)!r}); import ext\n" if ext is not None else ""
    return report_of(python(path + code), folder)


def owners(report: dict[str, Any]) -> dict[str, str]:
    """Module to owner, of the frames of the thread that crashed."""
    (thread,) = [one for one in report["crash"]["threads"] if one["crashed"]]
    return {frame["module"]: frame["owner"] for frame in thread["frames"] if frame["module"]}


def test_an_object_that_an_extension_damaged_is_no_null_pointer_of_pythons(ext: Path, tmp_path: Path) -> None:
    report = death("a = [1, 2]\next.without_type(a)\na = None", tmp_path, ext)
    assert verdict_of(report) == ("damaged-object", "likely")
    assert "ext.so" in told(report)
    assert report["verdict"]["culprit"]["function"] is None
    assert "ext.so" in report["verdict"]["fixes"][1]["text"]


def test_a_null_read_in_an_extension_keeps_its_verdict(ext: Path, tmp_path: Path) -> None:
    report = death("ext.null_read(0)", tmp_path, ext)
    assert verdict_of(report) == ("null-dereference", "certain")
    culprit = report["verdict"]["culprit"]
    assert (culprit["function"], culprit["module"], culprit["owner"]) == ("null_read", "ext.so", "native-code")
    assert culprit["nearest"] is False
    assert owners(report)["ext.so"] == "native-code"
    assert {owner for module, owner in owners(report).items() if "python3" in module} == {"interpreter"}


def test_who_gave_python_a_null_pointer_is_the_nearest_frame(ext: Path, tmp_path: Path) -> None:
    report = death("ext.ask_nobody(0)", tmp_path, ext)
    assert report["verdict"]["rule"] == "null-dereference"
    said = report["verdict"]["summary"]
    assert said.startswith("Python's `PyObject_GetAttrString` read through a null pointer")
    assert "the nearest frame that is not the interpreter's is `ask_nobody`" in said
    assert report["verdict"]["culprit"]["nearest"] is True


def test_a_stripped_library_is_named_for_an_abort(ext: Path, tmp_path: Path) -> None:
    subprocess.run(["strip", "-s", str(ext / "ext.so"), "-o", str(tmp_path / "ext.so")], check=True)
    report = death("ext.free_twice(0)", tmp_path, tmp_path)
    assert verdict_of(report) == ("double-free", "certain")
    culprit = report["verdict"]["culprit"]
    assert (culprit["function"], culprit["module"], culprit["owner"]) == (None, "ext.so", "native-code")
    assert "Native code in ext.so" in report["verdict"]["summary"]


def test_generated_code_with_the_name_of_typed_code_is_not_the_programs(ext: Path, tmp_path: Path) -> None:
    """As TensorFlow makes the functions for the ops of a loaded library, and the program came with ``python -c``."""
    wrapper = "def wrapper(x):\n  return ext.null_read(x)"
    report = death(
        f"library = {{'ext': ext}}\nexec('\\n' * 90 + {wrapper!r}, library)\ndef f(n):\n    return library['wrapper'](n)\nf(3)",
        tmp_path,
        ext,
    )
    place = report["verdict"]["culprit"]["python"]
    assert (place["function"], place["file"], place["line"]) == ("f", "<string>", 5)
    stack = next(one["python"] for one in report["crash"]["threads"] if one["crashed"])
    assert [(one["function"], one.get("owner")) for one in stack] == [
        ("wrapper", None),
        ("f", "script"),
        ("<module>", "script"),
    ]
    assert [one["name"] for one in stack[1]["values"]] == ["n"]


def test_what_pure_python_reaches_is_a_bug_of_cpython(tmp_path: Path) -> None:
    report = death(
        """
        import opcode
        def f(): pass
        load = bytes([opcode.opmap["LOAD_CONST"], 255])
        f.__code__ = f.__code__.replace(co_code=load * 4, co_consts=())
        f()
        """,
        tmp_path,
    )
    assert verdict_of(report) == ("interpreter-bug", "likely")
    assert "no extension, no ctypes" in told(report)


def test_a_callback_that_nobody_kept(tmp_path: Path) -> None:
    report = death(
        """
        import ctypes, gc
        libc = ctypes.CDLL(None)
        CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        def address():
            return ctypes.cast(CALLBACK(lambda one, two: 0), ctypes.c_void_p).value
        gone = address()
        others = [CALLBACK(lambda one, two: 1) for _ in range(3)]
        del others
        gc.collect()
        numbers = (ctypes.c_int * 100)(*range(100))
        libc.qsort.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
        libc.qsort(ctypes.addressof(numbers), 100, 4, gone)
        """,
        tmp_path,
    )
    assert report["verdict"]["rule"] in {"use-after-free", "bad-jump"}  # by what malloc has left in its place
    assert report["verdict"]["confidence"] != "certain" or report["verdict"]["rule"] == "bad-jump"
    assert "callback" in report["verdict"]["fixes"][0]["text"]


@needs.package("numpy")
def test_a_view_beyond_its_array_is_no_fault_of_numpys(tmp_path: Path) -> None:
    report = death(
        """
        import numpy as np
        from numpy.lib.stride_tricks import as_strided
        print(as_strided(np.arange(10.0), shape=(1 << 28,), strides=(4096,)).sum())
        """,
        tmp_path,
    )
    assert verdict_of(report) == ("invalid-array-view", "likely")
    assert "as_strided" in report["verdict"]["fixes"][0]["text"]
