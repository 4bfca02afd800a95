"""The emulated machine with larger pages and addresses of 52 bits: the same root file system under another kernel.

Pages of 16 KiB: Debian 13's kernel for them; its package is downloaded and unpacked as those of ``machine_image.py``. Pages
of 64 KiB, for which Debian has no kernel: compiled from Debian 12's sources, which takes some ten minutes once.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import machine_image

from debian_packages import apt_options

_SUITE = "trixie"
_KERNEL = "linux-image-arm64-16k"
"""Names the newest one in what it depends on."""
_MODULES = (
    *("crc32c_generic", "crc16", "mbcache", "jbd2", "ext4", "virtio_blk"),
    *("failover", "net_failover", "virtio_net"),
)
"""In the order in which they are loaded; the rest is in this kernel itself."""
_SOURCES = ("bookworm", "linux-source-6.1")
_OPTIONS = (
    *("ARM64_64K_PAGES", "ARM64_VA_BITS_52", "SMP", "MULTIUSER", "PRINTK", "BUG", "KALLSYMS", "VMAP_STACK"),
    *("ARM64_PTR_AUTH", "ARM64_BTI", "ARM64_TAGGED_ADDR_ABI", "ARM64_PAN", "ARM64_MTE"),
    *("ARM64_LSE_ATOMICS", "ARM64_USE_LSE_ATOMICS", "ARM_PMU", "PERF_EVENTS", "HIGH_RES_TIMERS", "NO_HZ_IDLE"),
    *("BLK_DEV_INITRD", "RD_GZIP", "BINFMT_ELF", "BINFMT_SCRIPT", "COREDUMP", "ELF_CORE", "EXPERT"),
    *("TTY", "UNIX98_PTYS", "ARM_AMBA", "SERIAL_AMBA_PL011", "SERIAL_AMBA_PL011_CONSOLE"),
    *("RTC_CLASS", "RTC_DRV_PL031", "RTC_HCTOSYS", "PCI", "PCI_HOST_GENERIC", "VIRTIO_MENU", "VIRTIO_PCI"),
    *("BLOCK", "BLK_DEV", "VIRTIO_BLK", "EXT4_FS", "PROC_FS", "PROC_SYSCTL", "PROC_PAGE_MONITOR", "SYSFS", "DEVTMPFS"),
    *("NET", "INET", "UNIX", "PACKET", "NETDEVICES", "NET_CORE", "VIRTIO_NET", "TMPFS", "SHMEM", "MEMFD_CREATE"),
    *("FUTEX", "EPOLL", "SIGNALFD", "TIMERFD", "EVENTFD", "AIO", "POSIX_TIMERS", "FILE_LOCKING", "INOTIFY_USER"),
    *("SYSVIPC", "POSIX_MQUEUE", "ADVISE_SYSCALLS", "MEMBARRIER", "RSEQ", "KCMP", "CROSS_MEMORY_ATTACH"),
    *("SECCOMP", "SECCOMP_FILTER", "CHECKPOINT_RESTORE", "CGROUPS", "MEMCG"),
    *("NAMESPACES", "PID_NS", "NET_NS", "USER_NS"),
)
"""All that this kernel has: what the machine boots from, and what programs and necropsy use."""


def made(usual: Path, pages: str) -> Path:
    """The folder to boot from; ``usual``: the one that ``machine_image.made`` returned; ``pages``: 16k or 64k.

    Raises subprocess.CalledProcessError where the package cannot be had, or the kernel cannot be compiled.
    """
    folder = usual / f"pages-{pages}"
    folder.mkdir(exist_ok=True)
    if not (folder / "initramfs.gz").exists():
        modules = _debians(folder) if pages == "16k" else _compiled(folder)
        archive = b"".join(machine_image.archive((usual / "root/usr/bin/busybox").read_bytes(), modules))
        (folder / "initramfs.gz").write_bytes(gzip.compress(archive, 1))
    disk = folder / "root.ext4"
    disk.unlink(missing_ok=True)
    disk.symlink_to(usual / "root.ext4")
    return folder


def _debians(folder: Path) -> Mapping[str, bytes]:
    """Debian's kernel, as ``vmlinuz`` in the folder, and the modules to load."""
    options = _updated(folder, _SUITE)
    depends = subprocess.run(["apt-cache", *options, "depends", _KERNEL], check=True, capture_output=True, text=True)
    newest = re.findall(r"Depends: (linux-image-\S+)", depends.stdout)[0]
    with tempfile.TemporaryDirectory(dir=folder) as name:
        unpacked = _unpacked(folder, options, newest, Path(name))
        shutil.copy(next((unpacked / "boot").glob("vmlinuz*")), folder / "vmlinuz")
        found = {path.name.partition(".")[0]: path for path in (unpacked / "usr/lib/modules").rglob("*.ko.xz")}
        return {name: lzma.decompress(found[name].read_bytes()) for name in _MODULES}


def _compiled(folder: Path) -> Mapping[str, bytes]:
    """A kernel of ours, as ``vmlinuz`` in the folder; it has no modules."""
    suite, package = _SOURCES
    with tempfile.TemporaryDirectory(dir=folder) as name:
        unpacked = _unpacked(folder, _updated(folder, suite), package, Path(name))
        subprocess.run(["tar", "-x", "-f", unpacked / f"usr/src/{package}.tar.xz", "-C", unpacked], check=True)
        sources = unpacked / package
        (sources / "wanted").write_text("".join(f"CONFIG_{one}=y\n" for one in _OPTIONS))
        make = ["make", "-s", f"-j{os.cpu_count()}", "ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"]
        subprocess.run([*make, "KCONFIG_ALLCONFIG=wanted", "allnoconfig"], cwd=sources, check=True)
        subprocess.run([*make, "Image"], cwd=sources, check=True)
        shutil.copy(sources / "arch/arm64/boot/Image", folder / "vmlinuz")
    return {}


def _updated(folder: Path, suite: str) -> list[str]:
    """Options of apt-get, which knows the suite's packages."""
    options = apt_options(folder / "apt", suite)
    subprocess.run(["apt-get", "-q", *options, "update"], check=True)
    return options


def _unpacked(folder: Path, options: list[str], package: str, target: Path) -> Path:
    subprocess.run(["apt-get", "-q", *options, "download", package], check=True, cwd=folder / "apt")
    file = next((folder / "apt").glob(f"{package}_*.deb"))
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as content:
        subprocess.run(["tar", "-x", "-C", target], stdin=content.stdout, check=True)
    return target
