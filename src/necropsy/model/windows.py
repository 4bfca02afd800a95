"""The libraries of packages on Windows, and what they would load, as ``necropsy doctor`` finds it."""

from __future__ import annotations

from necropsy.model.base import Noun


class DllNeed(Noun, frozen=True, kw_only=True):
    """A DLL that another one imports, or opens by its name, and the file that Windows would take."""

    name: str
    """In small letters: ``msvcp140.dll``"""
    path: str | None = None
    """None: it would not be found."""
    by: str | None = None
    """Where it is found: ``own folder``, ``Python's folder``, ``conda's folder``, ``System32``, ``Windows' folder``,
    ``PATH``. What an extension module imports is not looked for on PATH since Python 3.8; ``PATH`` then says that it
    lies there.

    ``package``: a package of the same installation brings it, and adds its folder or loads it before.
    """
    otherwise: str | None = None
    """The package's own file of that name, where another one with other contents is taken."""
    delayed: bool = False
    """It is loaded when it is used first."""
    functions: tuple[str, ...] = ()
    """Functions of the C++ runtime that it imports."""
    lacking: tuple[str, ...] = ()
    """Of these, the ones that the file does not have."""


class Dll(Noun, frozen=True, kw_only=True):
    """A compiled file of a checked distribution (``.dll``, ``.pyd``), or one that these load from elsewhere."""

    path: str
    distribution: str | None = None
    """Who brings it; None for a file of the system, of Python or of another program."""
    version: str | None = None
    """The ``FileVersion`` of its version resource: ``14.29.30153.0``"""
    linker: str | None = None
    """The version of the linker: ``14.29`` is Microsoft's of Visual Studio 2019."""
    imports: tuple[DllNeed, ...] = ()
    """What it imports, API sets apart; of a file that no distribution brings, only the C++ runtime and cuDNN."""
    opens: tuple[DllNeed, ...] = ()
    """What it opens by name when it is used."""
