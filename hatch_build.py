"""Builds what is written in C where there is a C compiler: the supervisor's library, the guard and the launcher.

None is linked with a C library, and none needs Python's headers (see ``csrc/kernel.h``), so a wheel that is built
anywhere runs everywhere on Linux on its processor, with glibc and with musl. That is the one that the compiler makes
code for, x86-64 or AArch64: with ``CC=aarch64-linux-gnu-gcc``, x86-64 machines build wheels for AArch64.
What is compiled is the same for musl, but the wheel for it is one of its own, which requires less: some of our
dependencies have no wheels there. It is what a Python that is linked with musl builds, and any with NECROPSY_LIBC=musl.
Without the supervisor's library, the loop in Python does its work. Without the guard, an allocator that programs are
preloaded with (``csrc/guard``), ``run --guard`` cannot do its work. Without the launcher, the console script is
``necropsy`` itself; with it, ``necropsy`` is the launcher, and executes the console script, ``necropsy-python`` beside
it.

The README of the package has absolute links, made from the repository's address in pyproject.toml. Without an address,
only the text of each link is left.

The source distribution has the documentation as a site in ``site/``, where it was built before (``make dist``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface
from packaging.requirements import Requirement
from packaging.tags import platform_tags

FOLDER = Path("src/necropsy/capture/linux")
PROCESSORS = ("x86_64", "aarch64")
FREESTANDING = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fno-tree-loop-distribute-patterns"),
    *("-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack"),
)
IF_KNOWN = ("-mno-outline-atomics",)
"""What only some compilers know: GCC for AArch64 has atomic operations call its own library otherwise."""
LIBRARY = ("-fPIC", "-fvisibility=hidden", "-shared")
SITE = Path("build/site")
PROGRAM = ("-static", "-fno-pie", "-no-pie")
COMMAND, SCRIPT = "necropsy", "necropsy-python"
"""The launcher, and the console script that it executes (``PYTHON_SCRIPT`` in launcher.c)."""


def compiler() -> str | None:
    """The C compiler: ``$CC``, else the first of the usual names that is installed."""
    named = os.environ.get("CC")
    names = (named,) if named else ("cc", "gcc", "clang")
    return next((found for name in names if name and (found := shutil.which(name.split()[0]))), None)


def processor() -> str | None:
    """The processor that the compiler makes Linux programs for, as ``uname -m`` calls it; None: another, or none."""
    found = compiler()
    if found is None:
        return None
    asked = subprocess.run([found, "-dumpmachine"], check=False, capture_output=True, text=True)
    name, _, system = asked.stdout.strip().partition("-")
    return name if name in PROCESSORS and "linux" in system else None


def known(compiler: str) -> list[str]:
    """Those of ``IF_KNOWN`` that the compiler takes."""
    empty = ("-x", "c", "-c", "-o", os.devnull, os.devnull)
    tries = {flag: subprocess.run([compiler, flag, *empty], check=False, capture_output=True) for flag in IF_KNOWN}
    return [flag for flag, tried in tries.items() if not tried.returncode and flag.encode() not in tried.stderr]


def compile_c(root: Path, built: Path, folder: str, flags: tuple[str, ...], *, instead: str) -> Path | None:
    """Compile the sources of a folder into one file; None where that is not possible, and ``instead`` is used.

    In the file's name and the flags, ``{}`` stands for the processor.
    """
    found, target = compiler(), processor()
    sources = sorted(str(path) for path in (root / FOLDER / folder).glob("*.c"))
    if found is None or target is None or not sources:
        return None
    built = root / str(built).format(target)
    built.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved over: a process that has the old file mapped keeps the old one.
    fresh = built.with_suffix(f".{os.getpid()}")
    words = [found, *FREESTANDING, *known(found), *(flag.format(target) for flag in flags), "-o", str(fresh), *sources]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"necropsy: {built.name} was not built, {instead} is used:\n{done.stderr}", file=sys.stderr)
        fresh.unlink(missing_ok=True)
        return None
    fresh.chmod(0o755)
    fresh.replace(built)
    return built


def compile_library(root: Path) -> Path | None:
    """The supervisor's library, beside the Python modules."""
    name = "_supervisor-{}.so"
    return compile_c(root, FOLDER / name, "csrc", (*LIBRARY, f"-Wl,-soname,{name}"), instead="the Python loop")


def compile_guard(root: Path) -> Path | None:
    """The guard, beside it."""
    name = "_guard-{}.so"
    return compile_c(root, FOLDER / name, "csrc/guard", (*LIBRARY, f"-Wl,-soname,{name}"), instead="no guard")


def compile_launcher(root: Path) -> Path | None:
    """The program ``necropsy``."""
    built = Path("build/launcher-{}/necropsy")
    return compile_c(root, built, "csrc/launcher", PROGRAM, instead="the console script")


def is_for_musl() -> bool:
    """The wheel is for musl: ``$NECROPSY_LIBC`` says so, else the Python that builds it is linked with it."""
    named = os.environ.get("NECROPSY_LIBC")
    return named == "musl" if named else any(tag.startswith("musllinux") for tag in platform_tags())


def absolute(readme: str, repository: str) -> str:
    """A README for a package index, where links to files of the repository lead nowhere.

    ``repository``: its address, without a slash at the end; empty: not known, so only the links' texts are left.
    """
    if not repository:
        readme = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", "", readme, flags=re.MULTILINE)
        return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]*\)", r"\1", readme)
    readme = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{repository}/raw/main/", readme)
    return re.sub(r"((?<!!)\[[^\]]+\]\()(?!https?:|#)", rf"\1{repository}/blob/main/", readme)


class MetadataHook(MetadataHookInterface):
    """The dependencies, the README with absolute links, and the project's addresses."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what pyproject.toml declares as dynamic."""
        without = self.config["without-musl"] if is_for_musl() else ()
        dependencies = self.config["dependencies"]
        metadata["dependencies"] = [one for one in dependencies if Requirement(one).name not in without]
        repository = str(self.config.get("repository", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}
        pages = {"Homepage": "", "Documentation": "/blob/main/docs/index.md", "Issues": "/issues"}
        pages["Changelog"] = "/blob/main/CHANGELOG.md"
        metadata["urls"] = {name: f"{repository}{page}" for name, page in pages.items()} if repository else {}


class BuildHook(BuildHookInterface[Any]):
    """Adds them to the wheel, and the site to the source distribution."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install finds the library in the source tree."""
        root = Path(self.root)
        if self.target_name == "sdist" and (root / SITE / "index.html").is_file():
            build_data["force_include"][str(root / SITE)] = "site"
        if self.target_name != "wheel":
            return
        libraries, launcher = [compile_library(root), compile_guard(root)], compile_launcher(root)
        built = [library for library in libraries if library is not None]
        for library in built if version != "editable" else ():
            build_data["force_include"][str(library)] = f"necropsy/capture/linux/{library.name}"
        if launcher is not None:
            build_data["shared_scripts"][str(launcher)] = COMMAND
            # Installers leave out a program that has the name of a console script.
            scripts = self.metadata.core.scripts
            scripts[SCRIPT] = scripts.pop(COMMAND)
        if built or launcher is not None:
            build_data["pure_python"] = False
            target = processor()
            libc = "musllinux_1_1" if is_for_musl() else "manylinux_2_17"
            build_data["tag"] = f"py3-none-{libc}_{target}"


if __name__ == "__main__":
    print(compile_library(Path(__file__).parent))
    print(compile_guard(Path(__file__).parent))
    print(compile_launcher(Path(__file__).parent))
