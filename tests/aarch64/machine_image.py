"""Makes what the emulated machine boots: a kernel, a root file system of Debian's packages for arm64, and wheels.

Nothing is installed on this machine: packages are downloaded and unpacked, as ``apt-get`` and ``pip`` for another
architecture do it, and kept outside the repository. It takes a minute the first time.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from debian_packages import apt_options

HERE = Path(__file__).parent
PLACE = "NECROPSY_AARCH64"
"""Environment variable: the folder in which it is kept, instead of one in the user's cache."""
_SUITE = "bookworm"
PYTHON = "3.11"
"""Debian 12's."""
_PACKAGES = (
    *("linux-image-6.1.0-50-cloud-arm64", "busybox-static", "bash", "coreutils", "util-linux", "mount", "kmod"),
    *("base-files", "libc-bin", "procps", "python3", "libstdc++6", "libgcc-s1"),
)
_WHEELS = (
    *("click", "msgspec", "py-spy", "capstone", "packaging", "tree-sitter", "tree-sitter-cpp", "ahocorasick_rs"),
    *("platformdirs", "jinja2", "cloudpickle", "numpy"),
)
FOR_AARCH64 = (
    *("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"),
    *(word for abi in ("cp311", "abi3", "none") for word in ("--abi", abi)),
    *(
        word
        for platform in ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
        for word in ("--platform", platform)
    ),
)
"""What tells pip that wheels are for the machine."""
_MODULES = (
    *("virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk"),
    *("failover", "net_failover", "virtio_net"),
)
_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /new
$b mount -t proc proc /proc
for one in {modules}; do $b insmod /modules/$one.ko; done
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -d /sys/block/vda ] && break; $b mkdir -p /sys; $b mount -t sysfs sysfs /sys 2>/dev/null; $b sleep 0.2; done
$b mkdir -p /dev
$b mount -t devtmpfs devtmpfs /dev
$b mount -t ext4 /dev/vda /new
$b mount -t devtmpfs devtmpfs /new/dev
$b mount -t proc proc /new/proc
$b mount -t sysfs sysfs /new/sys
$b mount -t tmpfs -o mode=1777 tmpfs /new/tmp
$b mkdir -p /new/dev/shm /new/dev/pts
$b mount -t tmpfs -o mode=1777 tmpfs /new/dev/shm
$b mount -t devpts devpts /new/dev/pts
$b ip link set lo up
$b ip link set eth0 up
$b ip address add 10.0.2.15/24 dev eth0
$b ip route add default via 10.0.2.2
exec $b switch_root /new /usr/bin/python3 /opt/machine_agent.py
"""
_USERS = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/sh\n"
_GROUPS = "root:x:0:\nuser:x:1000:\n"


def made() -> Path:
    """The folder with ``vmlinuz``, ``initramfs.gz`` and ``root.ext4``; made if there is none of these contents yet.

    Raises subprocess.CalledProcessError where a package cannot be had.
    """
    cache = Path(os.environ.get(PLACE) or Path.home() / ".cache/necropsy-aarch64")
    wanted = repr((_SUITE, _PACKAGES, _WHEELS, _MODULES, _INIT, _USERS, (HERE / "machine_agent.py").read_text()))
    mark = cache / "made-of"
    if not mark.exists() or mark.read_text() != wanted:
        cache.mkdir(parents=True, exist_ok=True)
        root = cache / "root"
        shutil.rmtree(root, ignore_errors=True)
        _unpack(_downloaded(cache), root)
        _install(cache / "wheels", root)
        _configure(root)
        modules = next((root / "usr/lib/modules").iterdir())
        shutil.copy(next((root / "boot").glob("vmlinuz*")), cache / "vmlinuz")
        drivers = {name: next(modules.rglob(f"{name}.ko")).read_bytes() for name in _MODULES}
        initial = b"".join(archive((root / "usr/bin/busybox").read_bytes(), drivers))
        (cache / "initramfs.gz").write_bytes(gzip.compress(initial, 1))
        shutil.rmtree(modules)
        shutil.rmtree(root / "boot")
        image = cache / "root.ext4"
        image.unlink(missing_ok=True)
        words = [
            "mke2fs",
            "-q",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-E",
            "root_owner=0:0",
            "-d",
            str(root),
            str(image),
            "1500M",
        ]
        subprocess.run(words, check=True)
        mark.write_text(wanted)
    return cache


def _downloaded(cache: Path) -> list[Path]:
    """The packages and what they depend on."""
    options = apt_options(cache / "apt", _SUITE)
    subprocess.run(["apt-get", "-q", *options, "update"], check=True)
    subprocess.run(["apt-get", "-q", "-y", *options, "--download-only", "install", *_PACKAGES], check=True)
    return sorted((cache / "apt/cache/archives").glob("*.deb"))


def _unpack(packages: list[Path], root: Path) -> None:
    for name in ("bin", "sbin", "lib"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacked:
            subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], stdin=unpacked.stdout, check=True)


def _install(wheels: Path, root: Path) -> None:
    """What necropsy needs of other projects: as wheels for Debian's Python, unpacked."""
    wheels.mkdir(exist_ok=True)
    target = root / f"usr/local/lib/python{PYTHON}/dist-packages"
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "download", *FOR_AARCH64, "-d", wheels, *_WHEELS], check=True)
    local = ["--no-deps", "--no-index", "--find-links", str(wheels), "--target", str(target)]
    subprocess.run([*pip, "install", *FOR_AARCH64, *local, *map(str, wheels.glob("*.whl"))], check=True)
    (root / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    for program in (target / "bin").iterdir():
        program.rename(root / "usr/local/bin" / program.name)
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        # Its bytecode is the same on every processor, and an emulated one takes long to compile it.
        folders = [root / "usr/lib" / f"python{PYTHON}", target]
        subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=False, stdout=subprocess.DEVNULL)


def _configure(root: Path) -> None:
    for name in ("dev", "proc", "sys", "tmp", "run", "root", "opt", "home/user"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text(_USERS)
    (root / "etc/group").write_text(_GROUPS)
    if os.geteuid() == 0:
        os.chown(root / "home/user", 1000, 1000)
    shutil.copy(HERE / "machine_agent.py", root / "opt/machine_agent.py")


def archive(busybox: bytes, drivers: Mapping[str, bytes]) -> Iterator[bytes]:
    """The initial file system in cpio's ``newc`` format: it loads the drivers of the disk and the network, in order."""
    for folder in ("bin", "modules", "dev"):
        yield _member(folder, 0o40755, b"")
    yield _member("dev/console", 0o20600, b"", (5, 1))
    yield _member("init", 0o100755, _INIT.format(modules=" ".join(drivers)).encode())
    yield _member("bin/busybox", 0o100755, busybox)
    for name, content in drivers.items():
        yield _member(f"modules/{name}.ko", 0o100644, content)
    yield _member("TRAILER!!!", 0, b"")


def _member(name: str, mode: int, data: bytes, device: tuple[int, int] = (0, 0)) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
    head = b"070701" + b"".join(f"{one:08x}".encode() for one in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
