"""Custom op libraries that are broken in one way each, built with gcc: what ``doctor --op`` says of them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doctor_building import NATIVE, Venv, after, flags, library, needs_compiler, versions
from necropsy.formats.cpu_features import processor_flags
from necropsy.model import Diagnosis

pytestmark = [needs_compiler, pytest.mark.skipif(os.name == "nt", reason="ELF files")]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
X86_64 = sys.platform == "linux" and os.uname().machine == "x86_64"
HARDENED = ("-O1", "-fstack-protector-all", "-Wl,-z,relro,-z,now")
SYSCONFIG = """
class sysconfig:
    get_compile_flags = staticmethod(lambda: [f"-I{__path__[0]}/include", "-D_GLIBCXX_USE_CXX11_ABI=1"])
    get_link_flags = staticmethod(lambda: [f"-L{__path__[0]}", "-l:libtensorflow_framework.so.2"])
"""
HEADER = """
#include <string>
namespace absl { inline namespace lts_20250127 { struct Status { Status(); }; } }
namespace tensorflow {
    struct OpKernelContext;
    struct OpKernel { std::string TraceString(OpKernelContext const& context, bool is_verbose) const; };
}
"""


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """An interpreter with a TensorFlow of our own making: the new string ABI, and one release of Abseil."""
    folder = tmp_path_factory.mktemp("op")
    made = Venv.make(folder / "env")
    names = (
        "_ZNK10tensorflow8OpKernel11TraceStringB5cxx11ERKNS_15OpKernelContextEb",
        "_ZN4absl12lts_202501276StatusC1Ev",
    )
    code = "".join(f"int {name}(void) {{ return 1; }}\n" for name in names)
    framework = library(folder / "libtensorflow_framework.so.2", code, "-Wl,-soname,libtensorflow_framework.so.2")
    files: dict[str, str | Path] = {
        "tensorflow/__init__.py": SYSCONFIG,
        "tensorflow/include/tensorflow.h": HEADER,
        f"tensorflow/{framework.name}": framework,
    }
    made.install("tensorflow", "2.20.0", files, tags=NATIVE)
    return made


def of(venv: Venv, path: Path, **variables: str) -> dict[str, Diagnosis]:
    document = venv.examine(ops=[str(path)], variables=variables)
    assert not [gap for gap in document.gaps if gap.part.startswith(("rule ", "ops"))]
    return {one.rule: one for one in document.findings}


def op(folder: Path, code: str = "int f(void) { return 1; }", *flags: str) -> Path:
    return library(folder / "op.so", code, *HARDENED, *flags)


def test_a_good_one(venv: Venv, tmp_path: Path) -> None:
    given = venv.site / "tensorflow" / "libtensorflow_framework.so.2"
    code = "int _ZN4absl12lts_202501276StatusC1Ev(void); int f(void) { return _ZN4absl12lts_202501276StatusC1Ev(); }"
    assert of(venv, op(tmp_path, code, str(given))) == {}
    # The framework is imported before its ops are loaded, so that one which does not name it is fine as well.
    assert of(venv, op(tmp_path, code)) == {}


def test_another_abseil(venv: Venv, tmp_path: Path) -> None:
    name = "_ZN4absl12lts_202308026StatusC1Ev"
    found = of(venv, op(tmp_path, f"int {name}(void); int f(void) {{ return {name}(); }}"))
    assert set(found) == {"op-abi-mismatch"}
    assert found["op-abi-mismatch"].summary.endswith("built with Abseil 20230802, and TensorFlow brings 20250127.")
    assert "get_compile_flags" in (found["op-abi-mismatch"].fixes[0].command or "")


def test_another_string_abi(venv: Venv, tmp_path: Path) -> None:
    code = """
        #include "tensorflow.h"
        using namespace tensorflow;
        extern "C" void f(OpKernel const& op, OpKernelContext const& context) { absl::Status(), op.TraceString(context, 1); }
    """
    built, source = tmp_path / "op.so", tmp_path / "op.cc"
    source.write_text(code)
    include = f"-I{venv.site}/tensorflow/include"
    words = ["g++", "-shared", "-fPIC", *HARDENED, "-D_GLIBCXX_USE_CXX11_ABI=0", include, str(source), "-o", str(built)]
    subprocess.run(words, check=True)
    found = of(venv, built)
    assert set(found) == {"op-abi-mismatch"}
    assert "built with the old C++ string ABI, and TensorFlow with the new one" in found["op-abi-mismatch"].summary
    assert {"_GLIBCXX_USE_CXX11_ABI=0", "_GLIBCXX_USE_CXX11_ABI=1"} <= {
        one.seen for one in found["op-abi-mismatch"].evidence
    }
    subprocess.run(f"{shlex.join(words)} $({found['op-abi-mismatch'].fixes[0].command})", shell=True, check=True)
    assert of(venv, built) == {}


def test_another_string_abi_of_what_returns_a_string(venv: Venv, tmp_path: Path) -> None:
    """Its name has no trace of it: TensorFlow's differs by the tag of the new ABI."""
    name = "_ZNK10tensorflow8OpKernel11TraceStringERKNS_15OpKernelContextEb"
    found = of(venv, op(tmp_path, f"int {name}(void); int f(void) {{ return {name}(); }}"))
    assert "built with the old C++ string ABI" in found["op-abi-mismatch"].summary


def test_another_major_version(venv: Venv, tmp_path: Path) -> None:
    name = "libtensorflow_framework.so.1"
    old = library(tmp_path / name, "int old(void) { return 1; }", f"-Wl,-soname,{name}")
    found = of(venv, op(tmp_path, "int old(void); int f(void) { return old(); }", str(old)))
    assert set(found) == {"op-abi-mismatch"}
    assert f"needs `{name}` of another TensorFlow" in found["op-abi-mismatch"].summary


def test_a_symbol_that_nothing_has(venv: Venv, tmp_path: Path) -> None:
    code = (
        "int nowhere(void); int perhaps(void) __attribute__((weak)); int f(void) { return perhaps ? perhaps() : %s; }"
    )
    assert of(venv, op(tmp_path, code % "1")) == {}
    built = op(tmp_path, code % "nowhere()")
    done = subprocess.run(
        [venv.python, "-c", f"import ctypes; ctypes.CDLL({str(built)!r}, 2)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "undefined symbol: nowhere" in done.stderr
    found = of(venv, built)
    assert set(found) == {"op-undefined-symbol"}
    assert "needs the symbol `nowhere`" in found["op-undefined-symbol"].summary
    given = library(tmp_path / "libnowhere.so", "int nowhere(void) { return 1; }")
    more = flags(found["op-undefined-symbol"])
    assert of(venv, op(tmp_path, code % "nowhere()", str(given), "-Wl,-rpath,$ORIGIN", *more)) == {}


def test_a_missing_library(venv: Venv, tmp_path: Path) -> None:
    gone = library(tmp_path / "libgone.so.1", "int gone(void) { return 1; }", "-Wl,-soname,libgone.so.1")
    built = op(tmp_path, "int gone(void); int f(void) { return gone(); }", str(gone))
    found = of(venv, built)
    assert set(found) == {"op-library-missing"}
    assert "`libgone.so.1` cannot be found" in found["op-library-missing"].summary
    assert of(venv, built, LD_LIBRARY_PATH=str(tmp_path)) == {}


def test_a_newer_compiler(venv: Venv, tmp_path: Path) -> None:
    old = library(
        tmp_path / "old/libstdc++.so.6",
        "int f(void) { return 1; }",
        "-Wl,-soname,libstdc++.so.6",
        versions(tmp_path / "map", "GLIBCXX_3.4"),
    )
    built, compiled = tmp_path / "op.so", tmp_path / "op.o"
    code = '#include <string>\nextern "C" unsigned long f(int n) { return std::to_string(n).append("x").size(); }'
    words = ["g++", "-c", "-fPIC", *HARDENED, "-x", "c++", "-", "-o", str(compiled)]
    subprocess.run(words, input=code.encode(), check=True)
    link = ["g++", "-shared", *HARDENED, str(compiled), "-o", str(built)]
    subprocess.run(link, check=True)
    variables = {"LD_LIBRARY_PATH": str(old.parent)}
    found = of(venv, built, **variables)
    assert set(found) == {"op-libstdcxx-too-new"}
    finding = found["op-libstdcxx-too-new"]
    assert "needs GLIBCXX_3.4." in finding.summary
    assert of(venv, built, **after(finding, variables)) == {}
    subprocess.run([*link, *flags(finding, fix=1)], check=True)
    assert not {one for one in of(venv, built, **variables).values() if one.severity != "note"}


@pytest.mark.skipif(not X86_64, reason="x86 instructions")
def test_instructions_of_another_processor(venv: Venv, tmp_path: Path) -> None:
    """AMD has abandoned FMA4: hardly any processor has it."""
    if "fma4" in (processor_flags() or ()):
        pytest.fail("this processor has FMA4: choose another feature")
    code = "double compute(double a, double b, double c) { return a * b + c; }"
    found = of(venv, op(tmp_path, code, "-O2", "-mfma4", "-ffp-contract=fast"))
    assert set(found) == {"op-cpu-features"}
    assert "needs FMA4, which this processor does not have: `vfmaddsd" in found["op-cpu-features"].summary
    assert "compute in " in (found["op-cpu-features"].evidence[0].where or "")
    assert of(venv, op(tmp_path, code, "-O2", "-ffp-contract=fast", flags(found["op-cpu-features"])[0])) == {}
    # The same code for processors that have it, chosen at run time.
    chosen = """
        __attribute__((target("fma4"))) static double fast(double a, double b, double c) { return a * b + c; }
        double compute(double a, double b, double c) { return __builtin_cpu_supports("fma4") ? fast(a, b, c) : a; }
    """
    assert of(venv, op(tmp_path, chosen, "-O2", "-ffp-contract=fast")) == {}
    clones = f'__attribute__((target_clones("default", "fma4"))) {code}'
    assert of(venv, op(tmp_path, clones, "-O2", "-ffp-contract=fast")) == {}
    # Bytes between functions that would be such an instruction.
    data = 'asm(".text\\n.byte 0xc4,0xe3,0xf9,0x6b,0xc2,0x10\\n"); int f(void) { return 1; }'
    assert of(venv, op(tmp_path, data)) == {}


@pytest.mark.parametrize(
    ("folder", "bad"),
    [("/nonexistent/build", True), ("build/lib", True), ("$ORIGIN", False), ("/usr/lib", False), ("/tmp", True)],
)
def test_a_search_path(venv: Venv, tmp_path: Path, folder: str, bad: bool) -> None:
    found = of(venv, op(tmp_path, "int f(void) { return 1; }", f"-Wl,-rpath,{folder}"))
    assert set(found) == ({"op-runpath"} if bad else set())


@pytest.mark.skipif(shutil.which("patchelf", path=PATH) is None, reason="patchelf is not installed")
def test_marks_that_patchelf_takes_away(venv: Venv, tmp_path: Path) -> None:
    marked = op(tmp_path, "int f(void) { return 1; }", "-Wl,-rpath,/home/ci/build:$ORIGIN", "-z", "execstack")
    found = of(venv, marked)
    assert set(found) == {"op-runpath", "op-executable-stack"}
    for one in found.values():
        subprocess.run(["sh", "-c", one.fixes[0].command or ""], check=True, env={**os.environ, "PATH": PATH})
    assert of(venv, marked) == {}
    assert b"$ORIGIN" in marked.read_bytes()


def test_how_it_was_built(venv: Venv, tmp_path: Path) -> None:
    code = """
        #include <string.h>
        int f(char *from, unsigned long size) { char all[16]; memcpy(all, from, size); return all[size & 15]; }
    """
    bare = ("-O1", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-Wl,-z,lazy")
    found = of(venv, library(tmp_path / "op.so", code, *bare))
    assert set(found) == {"op-no-hardening"}
    assert found["op-no-hardening"].severity == "note"
    assert "stack protector, full RELRO, _FORTIFY_SOURCE" in found["op-no-hardening"].summary
    assert of(venv, library(tmp_path / "op.so", code, *bare, *flags(found["op-no-hardening"]))) == {}
    found = of(venv, op(tmp_path, "int f(void) { return 1; }", "-z", "execstack"))
    assert set(found) == {"op-executable-stack"}
    more = flags(found["op-executable-stack"], fix=1)
    assert of(venv, op(tmp_path, "int f(void) { return 1; }", "-z", "execstack", *more)) == {}


@pytest.mark.skipif(not X86_64, reason="a code model of x86-64")
def test_a_part_that_was_compiled_without_fpic(venv: Venv, tmp_path: Path) -> None:
    code = "int x; int *f(void) { return &x; }"
    words = ("-fno-pic", "-mcmodel=large", "-Wl,-z,notext")
    found = of(venv, op(tmp_path, code, *words))
    assert set(found) == {"op-text-relocations"}
    assert of(venv, op(tmp_path, code, *words, *flags(found["op-text-relocations"]))) == {}
