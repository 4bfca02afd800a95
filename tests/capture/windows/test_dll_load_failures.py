"""Which DLL a load failed for, from the events as Windows and wine give them, and libraries that MinGW builds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import wine
from crashers.windows import build
from necropsy.capture.windows.dll_events import DllEvents
from necropsy.capture.windows.dll_load_failures import DllSearch, FailedLoad, SearchPlaces
from writers import pe

pytestmark = pytest.mark.skipif(not build.available(), reason="MinGW is not installed")
PROGRAM = "/app/python.exe"
SYSTEM = ("/windows/KERNEL32.dll", "/windows/msvcrt.dll")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``outer.pyd`` imports ``middle.dll``, which imports two functions of ``inner.dll``; ``old/inner.dll`` has one."""
    folder = tmp_path_factory.mktemp("made")
    texts = {
        "inner": "__declspec(dllexport) int one(void) { return 1; }\n__declspec(dllexport) int two(void) { return 2; }",
        "middle": "int one(void), two(void);\n__declspec(dllexport) int middle(void) { return one() + two(); }",
        "outer": "int middle(void);\n__declspec(dllexport) int outer(void) { return middle(); }",
        "old": "__declspec(dllexport) int one(void) { return 1; }",
    }
    needs = {"middle": "inner", "outer": "middle"}
    for name, text in texts.items():
        (folder / f"{name}.c").write_text(text)
        flags = [f"-L{folder}", f"-l:{needs[name]}.dll"] if name in needs else []
        built = wine.mingw(folder / f"{name}.c", "-shared", *flags, name="inner" if name == "old" else name)
        target = folder / ("old/inner.dll" if name == "old" else f"{name}.dll")
        target.parent.mkdir(exist_ok=True)
        shutil.copy(built, target)
    return folder


def put(made: Path, folder: Path, *names: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(made / name.replace(".pyd", ".dll"), folder / name)
    return [str(folder / name) for name in names]


def loads(*paths: str, taken: bool = False, later: Sequence[str] = ()) -> DllEvents:
    """The events of a process that starts, loads ``paths``, lets go of them (``taken``) and then loads ``later``."""
    seen = DllEvents()
    for base, path in enumerate((PROGRAM, *SYSTEM, *paths)):
        seen.mapped(base, path)
    if taken:
        for base, path in enumerate((PROGRAM, *SYSTEM, *paths)):
            if path in paths:
                seen.unmapped(base)
    for base, path in enumerate(later):
        seen.mapped(1000 + base, path)
    return seen


def failed(seen: DllEvents, *by_default: Path) -> tuple[FailedLoad, ...]:
    search = DllSearch(seen, SearchPlaces((Path("/app"), Path("/windows")), by_default))
    found = search.failed()
    assert search.complete
    return found


@pytest.mark.parametrize("taken", [True, False], ids=["as Windows tells it", "as wine tells it"])
def test_what_a_library_of_a_library_needs_is_found_missing(made: Path, tmp_path: Path, taken: bool) -> None:
    (one,) = failed(loads(*put(made, tmp_path, "outer.pyd", "middle.dll"), taken=taken))
    assert (one.load.name, one.importer.name, one.library) == ("outer.pyd", "middle.dll", "inner.dll")
    assert one.looked == (tmp_path, Path("/app"), Path("/windows"))
    assert one.last
    message = one.message(time.monotonic())
    assert message.kind == "missing-library"
    assert message.text.startswith("inner.dll was not found, which middle.dll imports; looked for in ")
    assert message.fields["path"] == str(tmp_path / "middle.dll")


def test_of_a_load_the_nearest_that_is_missing_is_told(made: Path, tmp_path: Path) -> None:
    (one,) = failed(loads(*put(made, tmp_path, "outer.pyd"), taken=True))
    assert (one.importer.name, one.library) == ("outer.pyd", "middle.dll")


@pytest.mark.parametrize("taken", [True, False])
def test_what_was_loaded_and_freed_did_not_fail(made: Path, tmp_path: Path, taken: bool) -> None:
    whole = put(made, tmp_path, "outer.pyd", "middle.dll", "inner.dll")
    assert failed(loads(*whole, taken=taken)) == ()


def test_what_was_loaded_after_it_is_another_load(made: Path, tmp_path: Path) -> None:
    paths = put(made, tmp_path / "a", "outer.pyd", "middle.dll")
    (one,) = failed(loads(*paths, taken=True, later=["/app/other.pyd"]))
    assert not one.last
    assert "last" not in one.message(time.monotonic()).fields


def test_a_second_try_that_succeeds_does_not_hide_the_first(made: Path, tmp_path: Path) -> None:
    first = put(made, tmp_path / "a", "outer.pyd", "middle.dll")
    second = put(made, tmp_path / "b", "outer.pyd", "middle.dll", "inner.dll")
    # What is found somewhere by now was not looked for there.
    (one,) = failed(loads(*first, taken=True, later=second))
    assert one.load.path == first[0]
    assert one.lies == tmp_path / "b"


def test_python_does_not_look_in_path(made: Path, tmp_path: Path) -> None:
    paths = put(made, tmp_path / "a", "outer.pyd", "middle.dll")
    put(made, tmp_path / "b", "inner.dll")
    (one,) = failed(loads(*paths, taken=True), tmp_path / "b")
    assert one.lies == tmp_path / "b"
    assert tmp_path / "b" not in one.looked
    assert one.message(time.monotonic()).fields["lies"] == str(tmp_path / "b")


def test_a_program_that_is_no_python_looks_in_path(made: Path, tmp_path: Path) -> None:
    paths = put(made, tmp_path / "a", "outer.dll", "middle.dll")
    put(made, tmp_path / "b", "inner.dll")
    assert failed(loads(*paths, taken=True), tmp_path / "b") == ()


def test_a_function_that_is_lacking(made: Path, tmp_path: Path) -> None:
    paths = put(made, tmp_path, "outer.pyd", "middle.dll")
    (one,) = failed(loads(*paths, str(made / "old" / "inner.dll"), taken=True))
    message = one.message(time.monotonic())
    assert message.kind == "undefined-symbol"
    assert (message.fields["symbol"], message.fields["library"]) == ("two", "inner.dll")
    assert message.text == "inner.dll has no two, which middle.dll imports; outer.pyd was to be loaded"


def test_a_file_for_another_processor(made: Path, tmp_path: Path) -> None:
    paths = put(made, tmp_path, "outer.pyd", "middle.dll")
    other = pe.Writer(machine=0xAA64)
    other.section(".text", b"\xc3", pe.CODE)
    (tmp_path / "inner.dll").write_bytes(other.written())
    (one,) = failed(loads(*paths, taken=True))
    message = one.message(time.monotonic())
    assert message.kind == "bad-library-file"
    assert message.fields["file"] == str(tmp_path / "inner.dll")


def test_names_of_sets_of_functions_are_no_files(made: Path, tmp_path: Path) -> None:
    (tmp_path / "sets.c").write_text("int f(void);\n__declspec(dllexport) int g(void) { return f(); }")
    (tmp_path / "f.c").write_text("__declspec(dllexport) int f(void) { return 1; }")
    name = "api-ms-win-necropsy-l1-1-0"
    shutil.copy(wine.mingw(tmp_path / "f.c", "-shared", name=name), tmp_path / f"{name}.dll")
    sets = wine.mingw(tmp_path / "sets.c", "-shared", f"-L{tmp_path}", f"-l:{name}.dll")
    (tmp_path / f"{name}.dll").unlink()
    assert failed(loads(str(sets), taken=True)) == ()


def test_what_cannot_be_read_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "text.dll").write_text("no image")
    assert failed(loads(str(tmp_path / "text.dll"), str(tmp_path / "absent.dll"), "<0x180000000>", taken=True)) == ()


def test_when_the_time_is_up_it_says_so(made: Path, tmp_path: Path) -> None:
    seen = loads(*put(made, tmp_path, "outer.pyd", "middle.dll"), taken=True)
    search = DllSearch(seen, SearchPlaces((Path("/app"),), ()), seconds=-1)
    assert search.failed() == ()
    assert not search.complete


def test_what_is_forgotten_is_not_judged(made: Path, tmp_path: Path) -> None:
    """A program that loads and frees without end costs a fixed amount."""
    (path,) = put(made, tmp_path, "outer.pyd")
    seen = loads(path, str(made / "middle.dll"))
    for _ in range(2000):
        seen.mapped(5000, "/windows/tzres.dll")
        seen.unmapped(5000)
    assert len(seen.all()) < 600
    seen.unmapped(4)  # middle.dll, which outer.pyd still had while it was there
    seen.unmapped(3)
    for _ in range(511):
        seen.mapped(5000, "/windows/tzres.dll")
        seen.unmapped(5000)
    assert [one.name for one in seen.gone].count("middle.dll") == 0
    assert [one.name for one in seen.gone].count("outer.pyd") == 1
    assert failed(seen) == ()
