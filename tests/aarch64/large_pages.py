"""The emulated machine with pages of 16 KiB and addresses of 52 bits: the same root file system under Debian 13's kernel for them.

Debian 12 has none. The kernel's package is downloaded and unpacked as those of ``machine_image.py``.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import machine_image

_SUITE = "trixie"
_KERNEL = "linux-image-arm64-16k"
"""Names the newest one in what it depends on."""
_MODULES = (
    *("crc32c_generic", "crc16", "mbcache", "jbd2", "ext4", "virtio_blk"),
    *("failover", "net_failover", "virtio_net"),
)
"""In the order in which they are loaded; the rest is in this kernel itself."""


def made(usual: Path) -> Path:
    """The folder to boot from; ``usual``: the one that ``machine_image.made`` returned.

    Raises subprocess.CalledProcessError where the package cannot be had.
    """
    folder = usual / "pages-16k"
    folder.mkdir(exist_ok=True)
    if not (folder / "initramfs.gz").exists():
        with_modules = folder / "unpacked"
        shutil.rmtree(with_modules, ignore_errors=True)
        with_modules.mkdir()
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", _package(folder)], stdout=subprocess.PIPE) as unpacked:
            subprocess.run(["tar", "-x", "-C", with_modules], stdin=unpacked.stdout, check=True)
        shutil.copy(next((with_modules / "boot").glob("vmlinuz*")), folder / "vmlinuz")
        archive = b"".join(_archive(usual / "root/usr/bin/busybox", with_modules))
        (folder / "initramfs.gz").write_bytes(gzip.compress(archive, 1))
        shutil.rmtree(with_modules)
    disk = folder / "root.ext4"
    disk.unlink(missing_ok=True)
    disk.symlink_to(usual / "root.ext4")
    return folder


def _package(folder: Path) -> Path:
    options = machine_image.apt_options(folder / "apt", _SUITE)
    subprocess.run(["apt-get", "-q", *options, "update"], check=True)
    depends = subprocess.run(["apt-cache", *options, "depends", _KERNEL], check=True, capture_output=True, text=True)
    newest = re.findall(r"Depends: (linux-image-\S+)", depends.stdout)[0]
    subprocess.run(["apt-get", "-q", *options, "download", newest], check=True, cwd=folder / "apt")
    return next((folder / "apt").glob(f"{newest}_*.deb"))


def _archive(busybox: Path, unpacked: Path) -> Iterator[bytes]:
    found = {path.name.partition(".")[0]: path for path in (unpacked / "usr/lib/modules").rglob("*.ko.xz")}
    modules = {name: lzma.decompress(found[name].read_bytes()) for name in _MODULES}
    return machine_image.archive(busybox.read_bytes(), modules)
