"""Jupyter's kernelspecs: where they are, and the one that starts the same kernel watched.

A kernelspec is a folder ``KERNELS/NAME`` with ``kernel.json`` (the command, a title) and logos. Jupyter need not be
installed where necropsy is, so its search path is followed here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from necropsy.errors import InputError, NecropsyError, NoInputError, OptionError

MARK = "necropsy"
"""The key in a kernelspec's metadata by which one of ours is known; its value names the kernel that it starts."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_KERNELS = Path("share", "jupyter", "kernels")
_PYTHONS = frozenset({"python", "python3", "python{}.{}".format(*sys.version_info[:2])})
"""In place of these words Jupyter starts its own interpreter."""
# The first entry of the path is the working directory. Where necropsy has been removed, the kernel starts without it.
_DOOR = """import os, sys
sys.path[:1] = []
sys.path.append({own!r})
try:
    from necropsy.notebook.launch import main
except ImportError:
    os.execvp(sys.argv[1], sys.argv[1:])
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Kernelspec:
    """One kernelspec that was found."""

    name: str
    folder: Path
    spec: Mapping[str, Any]

    @property
    def wrapped(self) -> str | None:
        """The kernel that it starts, where it is one of ours."""
        mark = _metadata(self.spec).get(MARK)
        return str(mark.get("kernel")) if isinstance(mark, dict) else None


def user_folder(variables: Mapping[str, str] = os.environ) -> Path:
    """The kernels folder of the user."""
    if variables.get("JUPYTER_DATA_DIR"):
        return Path(variables["JUPYTER_DATA_DIR"]) / "kernels"
    data = variables.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "jupyter" / "kernels"


def prefix_folder(prefix: Path | str) -> Path:
    """The kernels folder of an environment."""
    return Path(prefix).absolute() / _KERNELS


def folders(prefix: Path | None = None, variables: Mapping[str, str] = os.environ) -> list[Path]:
    """Where kernelspecs may be, the first that has a name wins.

    ``prefix``: an environment that is looked at first. Then what Jupyter searches, and the environment that is active,
    if it is not ours.
    """
    found = [prefix_folder(prefix)] if prefix is not None else []
    found += [Path(one) / "kernels" for one in variables.get("JUPYTER_PATH", "").split(os.pathsep) if one]
    active = [variables[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if variables.get(name)]
    program = shutil.which("jupyter", path=variables.get("PATH"))
    environments = [*active, sys.prefix, *([str(Path(program).resolve().parent.parent)] if program else [])]
    with suppress(RuntimeError):  # no home
        found.append(user_folder(variables))
    if site.ENABLE_USER_SITE and site.USER_BASE:
        found.append(prefix_folder(site.USER_BASE))
    found += map(prefix_folder, environments)
    found += [Path("/usr/local") / _KERNELS, Path("/usr") / _KERNELS]
    return list(dict.fromkeys(found))


def found(places: list[Path]) -> Iterator[Kernelspec]:
    """All kernelspecs that can be read, in the order of ``places``, then by name."""
    for place in places:
        try:
            names = sorted(path for path in place.iterdir() if _NAME.fullmatch(path.name))
        except OSError:
            continue
        for folder in names:
            with suppress(InputError, NoInputError):
                yield read(folder)


def named(name: str, places: list[Path]) -> Kernelspec:
    """The kernelspec of that name, or in that folder.

    Raises NoInputError where there is none, and InputError where it is damaged.
    """
    if os.sep in name:
        path = Path(name).absolute()
        return read(path.parent if path.name == "kernel.json" else path)
    for place in places:
        with suppress(NoInputError):
            return read(place / name)
        with suppress(NoInputError):
            return read(place / name.lower())
    known = sorted({one.name for one in found(places) if one.wrapped is None})
    raise NoInputError(f"there is no kernel {name!r}; there {_listed(known)}")


def _listed(names: list[str]) -> str:
    if not names:
        return "is none: pip install ipykernel in the environment of the notebook"
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"


def read(folder: Path) -> Kernelspec:
    """The kernelspec in a folder. Raises NoInputError where there is none, and InputError where it is damaged."""
    path = folder / "kernel.json"
    try:
        spec = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a kernelspec: {error}") from error
    command = spec.get("argv") if isinstance(spec, dict) else None
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise InputError(f"{path} is not a kernelspec: it has no command (argv)")
    return Kernelspec(folder.name, folder, spec)


def install(kernel: Kernelspec, name: str, title: str | None, place: Path) -> Path:
    """Write the kernelspec that starts ``kernel`` watched, as ``name`` into the kernels folder ``place``.

    Raises:
        OptionError: Jupyter refuses such a name.
        InputError: the name is another kernel's, or the kernel is a watched one.
        NecropsyError: the folder cannot be written to.

    """
    if not _NAME.fullmatch(name):
        raise OptionError(f"the name of a kernel has ASCII letters, digits, '.', '-' and '_', and {name!r} has others")
    if kernel.wrapped is not None:
        raise InputError(f"{kernel.name} is watched already: it starts {kernel.wrapped}")
    folder = place / name.lower()
    _replaceable(folder)
    spec = watched(kernel, title)
    try:
        place.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=place))
        try:
            shutil.copytree(kernel.folder, temporary, dirs_exist_ok=True)
            (temporary / "kernel.json").write_text(json.dumps(spec, indent=1, ensure_ascii=False) + "\n", "utf-8")
            temporary.chmod(0o755)
            if folder.exists():
                shutil.rmtree(folder)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise NecropsyError(f"cannot write {error.filename or place}: {error.strerror or error}") from error
    return folder


def _replaceable(folder: Path) -> None:
    """Only one of ours is overwritten. Raises InputError where it is another one."""
    if not folder.exists():
        return
    try:
        ours = read(folder).wrapped is not None
    except NecropsyError:
        ours = False
    if not ours:
        raise InputError(f"{folder} is another kernel's: choose another --name")


def watched(kernel: Kernelspec, title: str | None = None) -> dict[str, Any]:
    """The contents of kernel.json: everything as it was, but the command and the title."""
    command = list(kernel.spec["argv"])
    if command[0] in _PYTHONS:
        command[0] = _python_of(kernel) or command[0]
    own = str(Path(__file__).parent.parent.parent)
    name = kernel.spec.get("display_name") or kernel.name
    return {
        **kernel.spec,
        "argv": [sys.executable, "-E", "-c", _DOOR.format(own=own), *command],
        "display_name": title or f"{name} (watched)",
        "metadata": {**_metadata(kernel.spec), MARK: {"kernel": kernel.name}},
    }


def _python_of(kernel: Kernelspec) -> str | None:
    """The interpreter that Jupyter takes for a bare ``python``: that of the environment with the kernelspec."""
    parts = kernel.folder.parent.parts
    if parts[-3:] == _KERNELS.parts:
        prefix = Path(*parts[:-3])
        if (prefix / "bin" / "python").exists() and prefix not in {Path("/usr"), Path("/usr/local")}:
            return str(prefix / "bin" / "python")
    return None


def uninstall(name: str, places: list[Path]) -> Path:
    """Remove the watched kernel of that name; its folder.

    Raises:
        NoInputError: there is none.
        InputError: it is not one of ours.
        NecropsyError: it cannot be removed.

    """
    kernels = [one for one in found(places) if one.name == name.lower()]
    ours = next((one for one in kernels if one.wrapped is not None), None)
    if ours is None:
        if kernels:
            raise InputError(f"{kernels[0].folder} is not a watched kernel: `jupyter kernelspec remove` removes it")
        known = sorted({one.name for one in found(places) if one.wrapped is not None})
        raise NoInputError(f"there is no watched kernel {name!r}" + (f"; there {_listed(known)}" if known else ""))
    try:
        shutil.rmtree(ours.folder)
    except OSError as error:
        raise NecropsyError(f"cannot remove {error.filename or ours.folder}: {error.strerror or error}") from error
    return ours.folder


def _metadata(spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = spec.get("metadata")
    return dict(metadata) if isinstance(metadata, dict) else {}
