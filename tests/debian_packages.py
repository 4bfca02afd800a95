"""Packages and sources of a Debian that is not this machine's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def apt_options(apt: Path, suite: str, kind: Literal["deb", "deb-src"] = "deb") -> list[str]:
    """Options of apt-get for Debian's packages of arm64, or for sources, with all that it keeps in the folder ``apt``.

    The folder is made.
    """
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources").write_text(f"{kind} [signed-by={key}] http://deb.debian.org/debian {suite} main\n")
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources",
        "Dir::Etc::sourceparts": "/dev/null",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
