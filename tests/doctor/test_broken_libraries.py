"""Environments whose native libraries are broken in one way each: found as the dynamic loader would find it."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doctor_building import NATIVE, SUFFIX, Venv, after, library, needs_compiler, versions, wheel
from environment_sketch import environment
from necropsy.model import Diagnosis
from necropsy.rules.env import env_library_missing

pytestmark = needs_compiler


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv.make(tmp_path / "env")


def packed(venv: Venv, name: str, **files: Path) -> None:
    """Install a distribution that has these libraries."""
    paths: dict[str, str | Path] = {f"{name}/__init__.py": ""}
    paths |= {f"{name}/{path.name}": path for path in files.values()}
    venv.install(name, "1.0", paths, tags=NATIVE)


def loads(venv: Venv, path: str, **variables: str) -> str:
    """What the loader itself says when Python loads the library; "" where it does."""
    code = f"import ctypes, os; ctypes.CDLL({path!r}, os.RTLD_NOW)"
    done = subprocess.run(
        [venv.python, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.stderr.strip().rpartition("\n")[2]


def test_a_library_that_is_nowhere(venv: Venv, tmp_path: Path) -> None:
    gone = library(tmp_path / "libnowhere.so.1", "int gl(void) { return 1; }", "-Wl,-soname,libnowhere.so.1")
    built = library(tmp_path / f"_c{SUFFIX}", "int gl(void); int f(void) { return gl(); }", str(gone))
    packed(venv, "viewer", extension=built)
    assert "libnowhere.so.1: cannot open" in loads(venv, str(venv.site / "viewer" / built.name))
    finding = venv.finding("env-library-missing", "viewer")
    assert finding.severity == "error"
    assert "`libnowhere.so.1` cannot be found; viewer 1.0 needs it" in finding.summary
    assert venv.examine("viewer", variables={"LD_LIBRARY_PATH": str(tmp_path)}).findings == ()


def test_the_systems_package_that_brings_it_is_named() -> None:
    finding = env_library_missing.RULE.match(environment(env_library_missing.RULE.hit))
    assert finding is not None
    assert finding.fixes[0].command == "apt-get install --yes libgl1"


def test_what_another_file_of_the_installation_provides_is_not_missing(venv: Venv, tmp_path: Path) -> None:
    given = library(tmp_path / "libgiven.so.1", "int gl(void) { return 1; }", "-Wl,-soname,libgiven.so.1")
    built = library(tmp_path / "_c.so", "int gl(void); int f(void) { return gl(); }", str(given))
    packed(venv, "viewer", extension=built)
    packed(venv, "given", other=given)
    assert venv.examine("viewer").findings == ()


def test_a_file_that_is_gone_is_told_once(venv: Venv, tmp_path: Path) -> None:
    given = library(tmp_path / "libgiven.so.1", "int gl(void) { return 1; }", "-Wl,-soname,libgiven.so.1")
    flags = ("-Wl,-rpath,$ORIGIN", str(given))
    built = library(tmp_path / "_c.so", "int gl(void); int f(void) { return gl(); }", *flags)
    packed(venv, "viewer", extension=built, other=given)
    assert venv.examine("viewer").findings == ()
    (venv.site / "viewer" / given.name).unlink()
    finding = venv.finding("env-file-missing", "viewer")
    assert "NEEDED libgiven.so.1" in {one.seen for one in finding.evidence}


def shadowed(venv: Venv, tmp_path: Path, *, own: str, other: str) -> tuple[Path, str]:
    """A package with a library of its own, and another copy elsewhere; the folder of that, and the extension."""
    soname = "-Wl,-soname,libmine.so.1"
    mine = library(tmp_path / "own/libmine.so.1", own, soname)
    library(tmp_path / "other/libmine.so.1", other, soname)
    code = "int mine(void); int f(void) { return mine(); }"
    extension = library(tmp_path / "_c.so", code, "-Wl,--enable-new-dtags,-rpath,$ORIGIN", str(mine))
    packed(venv, "viewer", extension=extension, mine=mine)
    return tmp_path / "other", str(venv.site / "viewer/_c.so")


def test_ld_library_path_selects_another_copy(venv: Venv, tmp_path: Path) -> None:
    other, _ = shadowed(venv, tmp_path, own="int mine(void) { return 1; }", other="int mine(void) { return 2; }")
    value = f"/nonexistent:{other}"
    finding = venv.finding("env-library-shadowed", "viewer", variables={"LD_LIBRARY_PATH": value})
    assert finding.fixes[0].command == "export LD_LIBRARY_PATH=/nonexistent"
    assert venv.examine("viewer", variables=after(finding, {"LD_LIBRARY_PATH": value})).findings == ()


def test_the_same_copy_elsewhere_is_harmless(venv: Venv, tmp_path: Path) -> None:
    code = "int mine(void) { return 1; }"
    other, _ = shadowed(venv, tmp_path, own=code, other=code)
    shutil.copyfile(tmp_path / "own/libmine.so.1", other / "libmine.so.1")
    assert venv.examine("viewer", variables={"LD_LIBRARY_PATH": str(other)}).findings == ()


def test_two_versions_of_one_library(venv: Venv, tmp_path: Path) -> None:
    rpath = "-Wl,-rpath,$ORIGIN"
    made = {}
    for number in ("1", "2"):
        name = f"libfoo.so.{number}"
        made[number] = library(tmp_path / name, f"int foo{number}(void) {{ return 1; }}", f"-Wl,-soname,{name}")
    bar = library(
        tmp_path / "libbar.so.1",
        "int foo2(void); int bar(void) { return foo2(); }",
        "-Wl,-soname,libbar.so.1",
        rpath,
        str(made["2"]),
    )
    code = "int foo1(void); int bar(void); int f(void) { return foo1() + bar(); }"
    built = library(tmp_path / "_c.so", code, rpath, str(made["1"]), str(bar))
    packed(venv, "viewer", extension=built, bar=bar, one=made["1"], two=made["2"])
    finding = venv.finding("env-library-duplicate", "viewer")
    assert "libfoo" in finding.summary
    code = "int foo1(void); int bar(void) { return foo1(); }"
    bar = library(tmp_path / "new" / bar.name, code, "-Wl,-soname,libbar.so.1", rpath, str(made["1"]))
    venv.add_pip()
    files: dict[str, str | Path] = {f"viewer/{one.name}": one for one in (built, bar, made["1"])}
    wheel(tmp_path / "wheels", "viewer", "1.1", {"viewer/__init__.py": "", **files}, tags=NATIVE)
    venv.repair(finding, tmp_path / "wheels")
    assert venv.examine("viewer").findings == ()


def test_a_symbol_that_another_package_does_not_have(venv: Venv, tmp_path: Path) -> None:
    soname = "-Wl,-soname,libcore.so"
    new = library(
        tmp_path / "new/libcore.so", "int old_one(void) { return 1; } int new_one(void) { return 1; }", soname
    )
    old = library(tmp_path / "old/libcore.so", "int old_one(void) { return 1; }", soname)
    code = "int old_one(void); int new_one(void); int f(void) { return old_one() + new_one(); }"
    built = library(tmp_path / "_c.so", code, "-Wl,-rpath,$ORIGIN/../core", str(new))
    packed(venv, "core", library=old)
    packed(venv, "extra", extension=built)
    assert "undefined symbol: new_one" in loads(venv, str(venv.site / "extra/_c.so"))
    finding = venv.finding("env-symbol-missing", "extra", "core")
    assert "`new_one`" in finding.summary
    venv.add_pip()
    files: dict[str, str | Path] = {"core/__init__.py": "", "core/libcore.so": new}
    wheel(tmp_path / "wheels", "core", "1.1", files, tags=NATIVE)
    wheel(tmp_path / "wheels", "extra", "1.0", {"extra/__init__.py": "", "extra/_c.so": built}, tags=NATIVE)
    venv.repair(venv.finding("env-symbol-missing", "extra", "core"), tmp_path / "wheels")
    assert venv.examine("extra", "core").findings == ()


def test_a_symbol_that_the_packages_own_library_brings(venv: Venv, tmp_path: Path) -> None:
    """PyTorch's libtorch_nvshmem.so needs nvshmem's library, and what its libc10_cuda.so has without naming it."""
    shmem = library(tmp_path / "libshmem.so.3", "int shmem(void) { return 1; }", "-Wl,-soname,libshmem.so.3")
    own = library(tmp_path / "libc10.so", "int c10(void) { return 1; }")
    code = "int c10(void); int shmem(void); int f(void) { return c10() + shmem(); }"
    built = library(tmp_path / "libtorch.so", code, "-Wl,-rpath,$ORIGIN/../shmem", str(shmem))
    packed(venv, "shmem", library=shmem)
    packed(venv, "net", own=own, built=built)
    assert venv.examine("net", "shmem").findings == ()
    (venv.site / "net/libc10.so").write_bytes(library(tmp_path / "other.so", "int other;").read_bytes())
    assert "`c10`" in venv.finding("env-symbol-missing", "net", "shmem").summary


def test_a_plugin_that_does_not_fit_is_a_note(venv: Venv, tmp_path: Path) -> None:
    """nvshmem opens its transports one by one: what the machine has no library for is passed over."""
    folder, _ = versioned(venv, tmp_path, "libfabric.so.1", "FABRIC")
    one = library(
        tmp_path / "transport_fabric.so.6",
        "int f(void); int g(void) { return f(); }",
        str(tmp_path / "new/libfabric.so.1"),
    )
    packed(venv, "viewer", transport=one)
    found = venv.examine("viewer", variables={"LD_LIBRARY_PATH": str(folder)}).findings
    assert [(one.rule, one.severity) for one in found] == [("env-symbol-missing", "note")]


def test_what_plugins_lack_is_one_note(venv: Venv, tmp_path: Path) -> None:
    """Toolkits for windows bring plugins for much that nobody has, and libraries that only these need."""
    gone = [
        library(tmp_path / f"libgone{n}.so.1", f"int gone{n}(void) {{ return 1; }}", f"-Wl,-soname,libgone{n}.so.1")
        for n in range(3)
    ]
    inner = library(
        tmp_path / "libinner.so.1",
        "int gone0(void); int g(void) { return gone0(); }",
        "-Wl,-soname,libinner.so.1",
        str(gone[0]),
    )
    files: dict[str, str | Path] = {"qt/__init__.py": "", "qt/libinner.so.1": inner}
    for n, more in enumerate(gone):
        code = f"int gone{n}(void); int g(void); int f(void) {{ return gone{n}() + g(); }}"
        files[f"qt/plugins/p{n}.so"] = library(
            tmp_path / f"p{n}.so", code, "-Wl,-rpath,$ORIGIN/..", str(more), str(inner)
        )
    files["qt/_c.so"] = library(tmp_path / "_c.so")
    files["qt/_d.so"] = library(tmp_path / "_d.so", "int d;")
    venv.install("qt", "6.0", files, tags=NATIVE)
    found = venv.examine("qt").findings
    assert [(one.rule, one.severity) for one in found] == [
        ("env-library-missing", "warning"),
        ("env-library-missing", "note"),
    ]
    assert "`libgone1.so.1` and 1 more library cannot be found; qt 6.0 needs them" in found[1].summary


def test_an_allocator_that_a_package_brings_is_preloaded(venv: Venv, tmp_path: Path) -> None:
    code = '__thread char big[40000] __attribute__((tls_model("initial-exec"))); char f(int i) { return big[i]; }'
    packed(venv, "raylet", allocator=library(tmp_path / "libjemalloc.so", code))
    assert venv.examine("raylet").findings == ()


def versioned(
    venv: Venv, tmp_path: Path, soname: str, prefix: str, numbers: tuple[str, str] = ("9.98", "9.99")
) -> tuple[Path, str]:
    """A package that needs a new version of a runtime, and an old one of it elsewhere; its folder and the extension."""
    name = f"-Wl,-soname,{soname}"
    new = library(
        tmp_path / "new" / soname,
        "int f(void) { return 1; }",
        name,
        versions(tmp_path / "n.map", f"{prefix}_{numbers[1]}"),
    )
    old = library(
        tmp_path / "old" / soname,
        "int f(void) { return 1; }",
        name,
        versions(tmp_path / "o.map", f"{prefix}_{numbers[0]}"),
    )
    built = library(tmp_path / "_c.so", "int f(void); int g(void) { return f(); }", "-nostdlib", str(new))
    packed(venv, "viewer", extension=built)
    return old.parent, str(venv.site / "viewer/_c.so")


@pytest.mark.skipif(ctypes.util.find_library("stdc++") is None, reason="no C++ runtime here")
def test_an_old_cpp_runtime_in_ld_library_path(venv: Venv, tmp_path: Path) -> None:
    folder, extension = versioned(venv, tmp_path, "libstdc++.so.6", "GLIBCXX", ("3.4.1", "3.4.20"))
    variables = {"LD_LIBRARY_PATH": str(folder)}
    assert "`GLIBCXX_3.4.20' not found" in loads(venv, extension, **variables)
    finding = venv.finding("env-libstdcxx-too-old", "viewer", variables=variables)
    assert finding.fixes[0].command == "unset LD_LIBRARY_PATH"
    assert str(folder) in finding.summary
    assert venv.examine("viewer", variables=after(finding, variables)).findings == ()


def test_a_newer_c_library_than_the_systems(venv: Venv, tmp_path: Path) -> None:
    _, extension = versioned(venv, tmp_path, "libc.so.6", "GLIBC")
    assert "`GLIBC_9.99' not found" in loads(venv, extension)
    assert "GLIBC_9.99" in venv.finding("env-glibc-too-old", "viewer").summary
    venv.add_pip()
    files: dict[str, str | Path] = {"viewer/__init__.py": "", "viewer/_c.so": library(tmp_path / "_d.so")}
    wheel(tmp_path / "wheels", "viewer", "0.9", files, tags=NATIVE)
    venv.repair(venv.finding("env-glibc-too-old", "viewer"), tmp_path / "wheels")
    assert venv.examine("viewer").findings == ()


def test_two_openmp_runtimes(venv: Venv, tmp_path: Path) -> None:
    for name in ("one", "two"):
        packed(venv, name, runtime=library(tmp_path / "libiomp5.so"))
        packed(venv, f"gnu{name}", runtime=library(tmp_path / f"libgomp-{name}.so.1"))
    finding = venv.finding("env-duplicate-openmp", "one", "two", "gnuone", "gnutwo")
    assert finding.fixes[-1].text.startswith("A workaround")
    assert venv.examine("one", "gnuone", "gnutwo").findings == ()


def test_static_thread_local_storage(venv: Venv, tmp_path: Path) -> None:
    code = '__thread char big[40000] __attribute__((tls_model("initial-exec"))); char f(int i) { return big[i]; }'
    built = library(tmp_path / "_c.so", code)
    packed(venv, "viewer", extension=built)
    path = str(venv.site / "viewer/_c.so")
    assert "static TLS" in loads(venv, path)
    command = venv.finding("env-static-tls", "viewer").fixes[0].command
    assert command is not None
    name, _, value = command.removeprefix("export ").partition("=")
    assert loads(venv, path, **{name: value}) == ""
    assert venv.examine("viewer", variables={name: value}).findings == ()


def preloads(value: str, venv: Venv) -> tuple[Diagnosis, ...]:
    return venv.examine(variables={"LD_PRELOAD": value}).findings


def test_what_is_preloaded(venv: Venv, tmp_path: Path) -> None:
    asan, tcmalloc, mine = (library(tmp_path / name) for name in ("libasan.so.8", "libtcmalloc.so.4", "libmine.so"))
    found = preloads(f"{asan} {mine}", venv)
    assert [(one.rule, one.severity) for one in found] == [("env-preload", "warning")]
    assert found[0].fixes[0].command == f"export LD_PRELOAD={mine}"
    assert preloads(after(found[0], {"LD_PRELOAD": f"{asan} {mine}"})["LD_PRELOAD"], venv) == ()
    assert [one.severity for one in preloads(str(tcmalloc), venv)] == ["note"]
    assert "not there" in preloads("/nonexistent/libx.so", venv)[0].summary
    assert preloads(str(mine), venv) == ()


def test_a_library_of_the_users_own(venv: Venv, tmp_path: Path) -> None:
    gone = library(tmp_path / "libgone.so.1", "int gl(void) { return 1; }", "-Wl,-soname,libgone.so.1")
    op = library(tmp_path / "op.so", "int gl(void); int f(void) { return gl(); }", str(gone))
    gone.unlink()
    found = venv.examine(ops=(str(op),)).findings
    assert [one.rule for one in found if one.severity != "note"] == ["op-library-missing"]
    assert {one.rule for one in venv.examine(ops=(str(library(tmp_path / "whole.so")),)).findings} <= {
        "op-no-hardening"
    }


@pytest.mark.skipif(sys.platform != "linux" or ctypes.util.find_library("stdc++") is None, reason="no C++ runtime here")
def test_the_loader_is_asked_about_the_same_files(venv: Venv, tmp_path: Path) -> None:
    """What we say would be loaded is what the loader loads."""
    from necropsy.doctor import collect

    built = library(tmp_path / "_c.so", "int f(void) { return 1; }", "-Wl,--no-as-needed", "-lm", "-l:libstdc++.so.6")
    packed(venv, "viewer", extension=built)
    path = str(venv.site / "viewer/_c.so")
    environment = collect.collect(collect.Wanted(python=venv.python, packages=("viewer",), variables=dict(os.environ)))
    library_ = next(one for one in environment.libraries or () if one.path == path)
    told = {os.path.realpath(need.path) for need in library_.needed or () if need.path}
    code = f"import ctypes; ctypes.CDLL({path!r}); print(open('/proc/self/maps').read())"
    mapped = subprocess.run([venv.python, "-c", code], capture_output=True, text=True, check=True).stdout
    assert len(told) == 3
    assert all(one in mapped for one in told)
