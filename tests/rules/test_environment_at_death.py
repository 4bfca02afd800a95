"""What rules on environments say of a dead process: shown where it could explain the death, and only there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live import reports_of

from doctor_building import library, needs_compiler
from necropsy.capture.process.owning_package import package_of
from necropsy.diagnose import diagnose
from necropsy.model import Environment, Processor, Report
from necropsy.reports import html, markdown, text
from necropsy.rules import crash_rules, packages
from necropsy.rules.crash import numpy_abi_mismatch
from necropsy.rules.related import AT_FAULT, SAME
from sketch import crash

PROGRAM = """
#include <stdlib.h>
#include <string.h>
int inside(int *p); int other(void); int walk(int *p); int array(void); int one(int *p); int two(void);
__attribute__((noinline)) static int own(int *p) { return *p + 1; }
int main(int argc, char **argv) {
  int *volatile none = 0;
  other(); array(); two();
  if (!strcmp(argv[1], "inside")) return inside(none);
  if (!strcmp(argv[1], "extension")) return walk(none);
  if (!strcmp(argv[1], "version")) return one(none);
  if (!strcmp(argv[1], "illegal")) __builtin_trap();
  if (!strcmp(argv[1], "twice")) { char *volatile p = malloc(99); free(p); free(p); }
  return own(none);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with two OpenMP runtimes, by their names, and what stands for an allocator."""
    made = tmp_path_factory.mktemp("openmp")
    library(made / "libiomp5.so", "int inside(int *p) { return *p; }")
    library(made / "libgomp.so.1", "int other(void) { return 1; }")
    library(made / "libjemalloc.so.2.1", "int nothing;")
    (made / "libjemalloc.so.2").symlink_to("libjemalloc.so.2.1")
    library(made / "libfoo.so.1", "int one(int *p) { return *p; }")
    library(made / "libfoo.so.2", "int two(void) { return 2; }")
    site = made / "lib/python3.11/site-packages"
    for name in ("old-1.0", "numpy-2.1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    code = 'const char *name = "numpy.core._multiarray_umath"; int walk(int *p) { return *p; }'
    library(site / "old/native.so", code)
    library(site / "numpy/_core/_multiarray_umath.so", "int array(void) { return 1; }")
    libraries = [str(one) for one in (*made.rglob("*.so"), *made.rglob("lib[gf]*.so.*"))]
    words = ["gcc", "-g", "-w", "-x", "c", "-o", str(made / "program"), "-", "-x", "none", *libraries]
    words.append(f"-Wl,-rpath,{made}")
    subprocess.run(words, input=PROGRAM.encode(), check=True)
    return made


def report(folder: Path, how: str, *, preload: bool = False) -> dict[str, Any]:
    settings = [f"LD_PRELOAD={folder}/libjemalloc.so.2"] if preload else []
    return reports_of(["/usr/bin/env", *settings, str(folder / "program"), how], folder)[0]


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
class TestRealDeaths:
    def test_a_fault_in_one_of_two_openmp_runtimes(self, folder: Path) -> None:
        (found,) = report(folder, "inside")["environment_findings"]
        assert found["rule"] == "env-duplicate-openmp"
        assert {one["seen"] for one in found["evidence"]} == {f"{folder}/libiomp5.so", f"{folder}/libgomp.so.1"}

    def test_a_fault_in_code_that_was_compiled_for_another_numpy(self, folder: Path) -> None:
        (found,) = report(folder, "extension")["environment_findings"]
        assert found["rule"] == "env-numpy-abi-mismatch"
        assert "old 1.0 was built for another NumPy ABI (<2), and numpy 2.1.0 is installed" in found["summary"]
        assert found["fixes"][0]["command"] == f"{folder}/bin/python -m pip install 'numpy<2'"

    def test_a_fault_in_one_of_two_versions_of_a_library(self, folder: Path) -> None:
        (found,) = report(folder, "version")["environment_findings"]
        assert found["rule"] == "env-library-duplicate"
        assert {one["seen"] for one in found["evidence"]} == {f"{folder}/libfoo.so.1", f"{folder}/libfoo.so.2"}

    def test_a_fault_elsewhere_has_nothing_to_do_with_them(self, folder: Path) -> None:
        assert report(folder, "own", preload=True)["environment_findings"] == []

    def test_the_processor_is_kept_where_it_refused_an_instruction(self, folder: Path) -> None:
        assert "sse2" in report(folder, "illegal")["crash"]["environment"]["processor"]["flags"]
        assert report(folder, "own")["crash"]["environment"]["processor"] is None

    def test_a_preloaded_allocator_and_a_block_freed_twice(self, folder: Path) -> None:
        seen = report(folder, "twice", preload=True)
        assert seen["verdict"]["rule"] in {"double-free", "heap-corruption"}
        (found,) = seen["environment_findings"]
        assert found["rule"] == "env-preload"
        assert found["fixes"][0]["command"] == "unset LD_PRELOAD"
        assert any("libjemalloc" in one["seen"] for one in seen["verdict"]["evidence"])
        assert report(folder, "twice")["environment_findings"] == []


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
class TestOpsThatWereRefused:
    """What the file of the op says, held against the TensorFlow that was mapped: the symbol alone does not tell it."""

    @staticmethod
    def seen(folder: Path, wanted: str) -> dict[str, Any]:
        site = folder / "lib/python3.11/site-packages/tensorflow"
        names = ("_ZNK10tensorflow8OpKernel4nameB5cxx11Ev", "_ZN4absl12lts_202501276StatusC1Ev")
        framework = library(
            site / "libtensorflow_framework.so.2", "".join(f"int {one}(void) {{ return 1; }}\n" for one in names)
        )
        op = library(folder / "op.so", f"int {wanted}(void); int f(void) {{ return {wanted}(); }}")
        code = f"import ctypes; ctypes.CDLL({str(framework)!r}, 256 | 2); ctypes.CDLL({str(op)!r})"
        return reports_of([sys.executable, "-c", code], folder)[0]

    def test_another_string_abi(self, tmp_path: Path) -> None:
        found = self.seen(tmp_path, "_ZNK10tensorflow8OpKernel4nameEv")
        assert found["verdict"]["rule"] == "op-abi-mismatch"
        assert found["verdict"]["summary"].endswith("with the old C++ string ABI, and TensorFlow with the new one.")
        assert {"_GLIBCXX_USE_CXX11_ABI=0", "_GLIBCXX_USE_CXX11_ABI=1"} <= {
            one["seen"] for one in found["verdict"]["evidence"]
        }
        (environment,) = found["environment_findings"]
        assert environment["rule"] == "op-abi-mismatch"
        assert environment["fixes"][0]["command"].startswith(f"{tmp_path}/bin/python -c ")

    def test_another_abseil(self, tmp_path: Path) -> None:
        found = self.seen(tmp_path, "_ZN4absl12lts_202308026StatusC1Ev")
        assert found["verdict"]["summary"].endswith(
            "it was built with Abseil 20230802, and TensorFlow brings 20250127."
        )
        assert [one["rule"] for one in found["environment_findings"]] == ["op-abi-mismatch"]


SITE = "/env/lib/python3.11/site-packages"
FAULT = """
    signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
    at 0x7f0000001000 mov eax, dword ptr [rdi]
    operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
    stack 8MiB used 20KiB whole main
"""
LIBRARIES = f"""
    module {SITE}/numpy/_core/_multiarray_umath.so 2.1.0 of numpy
    module {SITE}/tensorflow/_pywrap_bfloat16.so 2.15.1 of tensorflow
    module {SITE}/other/native.so 1.0 of other
"""


def judged(*parts: str) -> Report:
    return diagnose(crash("\n".join(parts)), crash_rules())


@pytest.mark.parametrize(
    ("frames", "rules"),
    [
        (("Register @ _pywrap_bfloat16.so", "main @ python3.11"), ["env-numpy-abi-mismatch"]),
        (("array_dealloc @ _multiarray_umath.so", "Register @ _pywrap_bfloat16.so"), ["env-numpy-abi-mismatch"]),
        (("array_dealloc @ _multiarray_umath.so", "walk @ native.so"), []),
        (("walk @ native.so", "Register @ _pywrap_bfloat16.so"), []),
    ],
)
def test_another_numpy_is_told_where_the_extension_or_what_it_calls_is_at_fault(
    frames: tuple[str, ...], rules: list[str]
) -> None:
    found = judged(FAULT, *(f"frame {one} takes 32" for one in frames), LIBRARIES)
    assert [one.rule for one in found.environment_findings] == rules
    for one in found.environment_findings:
        assert one.fixes[0].command == "/env/bin/python -m pip install 'numpy<2.0.0,>=1.23.5'"


def test_a_verdict_gets_its_reason_as_evidence() -> None:
    said = numpy_abi_mismatch.RULE.hit
    bare, whole = judged(said), judged(said, LIBRARIES)
    assert bare.verdict is not None
    assert whole.verdict is not None
    assert bare.environment_findings == ()
    assert [one.rule for one in whole.environment_findings] == ["env-numpy-abi-mismatch"]
    assert len(whole.verdict.evidence) > len(bare.verdict.evidence)
    assert "numpy 2.1.0" in {one.seen for one in whole.verdict.evidence}


ILLEGAL = """
    signal SIGILL ILL_ILLOPN 0x7f0000001000
    at 0x7f0000001000 vmovups ymm0, ymmword ptr [rdi]
    feature avx missing
    frame tsl::port::Init @ _pywrap_bfloat16.so takes 32
"""


@pytest.mark.parametrize(
    ("flags", "rules"), [(("sse2", "sse4_2"), ["env-cpu-features"]), (("sse2", "avx"), []), (None, [])]
)
def test_the_processor_that_a_package_is_too_new_for(flags: tuple[str, ...] | None, rules: list[str]) -> None:
    processor = Processor(name="Westmere", flags=flags, told_by="/proc/cpuinfo") if flags is not None else None
    known = Environment(platform="Linux 6.1 x86_64", processor=processor)
    dead = msgspec.structs.replace(crash(ILLEGAL + LIBRARIES), environment=known)
    found = diagnose(dead, crash_rules())
    assert found.verdict is not None
    assert found.verdict.rule == "illegal-instruction"
    assert [one.rule for one in found.environment_findings] == rules


def test_every_format_shows_them() -> None:
    found = judged(FAULT, "frame Register @ _pywrap_bfloat16.so takes 32", LIBRARIES)
    for render in (text.render, markdown.render, html.render):
        page = render(found)
        assert "In this environment" in page
        assert "numpy 2.1.0 is installed" in " ".join(page.replace("\\", "").split())


def test_the_tables_name_verdicts_that_there_are() -> None:
    known = {rule.name for rule in crash_rules()}
    for verdicts in (*SAME.values(), *(verdicts for verdicts, _ in AT_FAULT.values())):
        assert known.issuperset(verdicts)


@pytest.mark.parametrize("specifier", ["<2", "<2.0.0,>=1.23.5", ">=1.26", "<=1.26.0", ">2", "==1.26.*", "~=1.23", ""])
@pytest.mark.parametrize("installed", ["1.26.0", "1.26", "2.0.0", "2", "1.23.4", "2.1.0rc1", "1.26.0+local"])
def test_plain_bounds_are_compared_as_packaging_does(installed: str, specifier: str) -> None:
    from packaging.specifiers import SpecifierSet

    assert packages.meets(installed, specifier) == SpecifierSet(specifier).contains(installed, prereleases=True)


def test_packages_of_nvidia_share_a_folder(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    for name in ("nvidia_cudnn_cu12-9.3.0.75", "nvidia_cuda_runtime_cu12-12.5.82", "nvidia_cuda_nvrtc_cu12-12.5.40"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    assert package_of(f"{site}/nvidia/cudnn/lib/libcudnn.so.9") == ("nvidia-cudnn-cu12", "9.3.0.75")
    assert package_of(f"{site}/nvidia/cuda_runtime/lib/libcudart.so.12") == ("nvidia-cuda-runtime-cu12", "12.5.82")
    assert package_of(f"{site}/nvidia/cu13/lib/libcublas.so.13") is None
