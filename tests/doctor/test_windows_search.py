"""Which DLL Windows takes for what a package imports: packages built here, imported by Windows' Python under wine.

All packages lie in one installation, and a shell of Windows imports and examines them before and after the fixes.
"""

from __future__ import annotations

import json
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wine

pytestmark = wine.needed

SHARED = "__declspec(dllexport) int answer(void) { return ANSWER; }\n"
MODULE = """
typedef struct object object;
__declspec(dllimport) object *PyModule_Create2(void *, int);
__declspec(dllimport) int PyModule_AddIntConstant(object *, const char *, long);
int answer(void);
static struct { long long head[5]; const char *name, *doc; long long size, rest[5]; } about = {{1}, "core", 0, -1};
__declspec(dllexport) object *PyInit_core(void) {
    object *made = PyModule_Create2(&about, 1013);
    PyModule_AddIntConstant(made, "answer", answer());
    return made;
}
"""
# What Microsoft's linker adds for /DELAYLOAD: a descriptor, and a helper that opens the DLL by its name.
DELAYED = """
#include <windows.h>
__asm__(".section .didat,\\"w\\"\\n.globl delayed\\ndelayed: .long 1\\n.rva dll_name\\n.rva dll_handle\\n.rva dll_table\\n"
        ".rva dll_names\\n.long 0, 0, 0\\n.fill 32\\n"
        "dll_name: .asciz \\"" SHARED "\\"\\n.balign 8\\ndll_handle: .quad 0\\ndll_table: .quad 0, 0\\n"
        "dll_names: .rva hint\\n.long 0\\n.quad 0\\nhint: .short 0\\n.asciz \\"answer\\"\\n.text\\n");
int answer(void) { return ((int (*)(void))GetProcAddress(LoadLibraryA(SHARED), "answer"))(); }
"""


ADDS = "import os\nos.add_dll_directory(os.path.join(os.path.dirname(__file__), 'libs'))\n"
OPENS = "import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'libs', 'opening.dll'))\n"
SOURCES = {"adding": ADDS, "shaded": ADDS, "opening": OPENS}
OWN = {
    "adding": "libs/adding.dll",
    "shaded": "libs/shaded.dll",
    "opening": "libs/opening.dll",
    "later": "later.dll",
    "beside": "beside.dll",
}
"""Where each package has its own DLL, which answers 1. ``lost`` has none, nor has ``pathless``, for which PATH has one."""
OTHERS = {"shaded": "python", "opening": "python", "later": "tools", "pathless": "tools"}
"""Where there is another DLL of that name, which answers 2; the folder ``tools`` is on PATH."""
NAMES = ("adding", "beside", "later", "lost", "opening", "pathless", "shaded")
IMPORT = f"""
import importlib
for name in {NAMES!r}:
    try:
        print(name, importlib.import_module(name + ".core").answer)
    except ImportError as error:
        print(name, "fails")
"""


@dataclass(frozen=True)
class Seen:
    """What the packages said when they were imported, and what doctor said of them."""

    answers: dict[str, str]
    findings: dict[str, dict[str, Any]]
    not_tried: list[str]


@dataclass(frozen=True)
class Installation:
    """A Windows Python of its own with the packages."""

    root: Path
    base: Path

    def seen(self, *fixes: str) -> Seen:
        """Paste the fixes into a shell, with the folder ``tools`` on PATH."""
        tools, base, python = (wine.windows_path(one) for one in (self.root / "tools", self.base, self.python))
        lines = [
            "@echo off",
            f"set PATH={tools};%PATH%",
            *fixes,
            f'"{python}" "{wine.windows_path(self.root / "import.py")}"',
            f'"{base}" -m necropsy doctor --no-probe --format json --python "{python}" {" ".join(NAMES)} msgspec',
        ]
        (self.root / "pasted.bat").write_bytes("\r\n".join([*lines, ""]).encode())
        done = wine.run("cmd.exe", "/c", wine.windows_path(self.root / "pasted.bat"), env={"NECROPSY_KEEP": "0"})
        said, brace, document = done.stdout.partition("{")
        found = json.loads(brace + document)
        of_packages = [one for one in found["findings"] if one["rule"].startswith("env-library-")]
        return Seen(
            dict(line.split() for line in said.splitlines() if line.count(" ") == 1),
            {next(name for name in NAMES if f"{name} 1.0" in one["summary"]): one for one in of_packages},
            [one["rule"] for one in found["not_tried"]],
        )

    @property
    def python(self) -> Path:
        return self.root / "python" / "python.exe"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    base = wine.python()
    root = tmp_path_factory.mktemp("installation")
    (root / "python").mkdir()
    (root / "tools").mkdir()
    for file in base.parent.iterdir():
        if file.suffix == "._pth":
            (root / "python" / file.name).write_text(file.read_text() + wine.windows_path(root / "site") + "\n")
        else:
            (root / "python" / file.name).symlink_to(file.resolve())
    (root / "import.py").write_text(IMPORT)
    for name in NAMES:
        _package(root, name, str(base.parent / "python311.dll"))
    return Installation(root, base)


def _package(root: Path, name: str, python: str) -> None:
    package, about = root / "site" / name, root / "site" / f"{name}-1.0.dist-info"
    for folder in (package / "libs", about, root / "built" / name):
        folder.mkdir(parents=True)
    shared, module = root / "built" / "shared.c", root / "built" / "module.c"
    shared.write_text(SHARED)
    module.write_text(MODULE + (DELAYED if name == "later" else ""))
    link = root / "built" / name / f"{name}.dll"
    _compiled(link, shared, "-DANSWER=1")
    _compiled(package / "core.pyd", module, f'-DSHARED="{name}.dll"', python, *([] if name == "later" else [str(link)]))
    if name == "later":
        _with_delay_directory(package / "core.pyd")
    (package / "__init__.py").write_text(SOURCES.get(name, ""))
    files = [f"{name}/__init__.py", f"{name}/core.pyd"]
    if name in OWN:
        link.replace(package / OWN[name])
        files.append(f"{name}/{OWN[name]}")
    if name in OTHERS:
        _compiled(root / OTHERS[name] / f"{name}.dll", shared, "-DANSWER=2")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "RECORD").write_text("".join(f"{one},,\n" for one in files))


def _compiled(made: Path, source: Path, *flags: str) -> None:
    command = [wine.CC, "-shared", "-s", "-o", str(made), str(source), *flags]
    subprocess.run(command, check=True, timeout=wine.LONG_S)


def _with_delay_directory(path: Path) -> None:
    """Say in the header where the descriptor lies, as Microsoft's linker does."""
    data = bytearray(path.read_bytes())
    header = struct.unpack_from("<I", data, 60)[0] + 24
    count, optional = struct.unpack_from("<H", data, header - 18)[0], struct.unpack_from("<H", data, header - 4)[0]
    rows = (struct.unpack_from("<8sIIII", data, header + optional + 40 * each) for each in range(count))
    rva = next(rva for name, _, rva, _, _ in rows if name.startswith(b".didat"))
    struct.pack_into("<II", data, header + 112 + 8 * 13, rva, 64)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def before(installation: Installation) -> Seen:
    return installation.seen()


@pytest.fixture(scope="module")
def after(installation: Installation, before: Seen) -> Seen:
    """The first fix of each finding was followed: as a command, or where that only searches, by hand."""
    where = before.findings["lost"]["fixes"][0]
    assert where["command"].startswith("where /R") and "copy it to" in where["text"]
    (installation.root / "built" / "lost" / "lost.dll").rename(installation.root / "site" / "lost" / "lost.dll")
    fixes = [one["fixes"][0]["command"] for name, one in before.findings.items() if name != "lost"]
    return installation.seen(*fixes)


def test_what_windows_loads(before: Seen) -> None:
    """The search that doctor does again."""
    expected = {"adding": "1", "beside": "1", "opening": "1", "later": "2", "shaded": "2"}
    assert before.answers == {**expected, "lost": "fails", "pathless": "fails"}
    assert set(before.findings) == {"later", "lost", "pathless", "shaded"}
    assert not {"env-library-missing", "env-library-shadowed"} & set(before.not_tried)


def test_the_folder_of_python_comes_before_those_that_packages_add(before: Seen, installation: Installation) -> None:
    finding = before.findings["shaded"]
    copy = wine.windows_path(installation.root / "python" / "shaded.dll")
    assert (finding["rule"], finding["severity"]) == ("env-library-shadowed", "warning")
    assert finding["summary"].startswith(f"`{copy}`, in Python's folder, is found first; shaded 1.0 brings")
    assert finding["fixes"][0]["command"] == f"ren {copy} shaded.dll.off"


def test_what_is_loaded_when_it_is_used_is_looked_for_on_path(before: Seen, installation: Installation) -> None:
    finding = before.findings["later"]
    tools = wine.windows_path(installation.root / "tools")
    assert (finding["rule"], finding["severity"]) == ("env-library-shadowed", "warning")
    assert finding["summary"].startswith(f"PATH selects `{tools}\\later.dll`; later 1.0 brings")
    own = wine.windows_path(installation.root / "site" / "later")
    assert finding["fixes"][0]["command"].startswith(f'set "PATH={own};{tools};')


def test_a_library_that_lies_nowhere(before: Seen) -> None:
    finding = before.findings["lost"]
    assert (finding["rule"], finding["severity"]) == ("env-library-missing", "error")
    assert finding["summary"] == "`lost.dll` cannot be found; lost 1.0 needs it (`core.pyd`)."


def test_a_library_that_only_path_leads_to(before: Seen) -> None:
    finding = before.findings["pathless"]
    assert (finding["rule"], finding["severity"]) == ("env-library-missing", "warning")
    assert finding["summary"].startswith("`pathless.dll` is only on PATH, where extension modules are not looked for")


def test_each_finding_is_gone_after_its_fix(after: Seen) -> None:
    assert after.findings == {}
    assert after.answers == {**dict.fromkeys(NAMES, "1"), "pathless": "2"}
