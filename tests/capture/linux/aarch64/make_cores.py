"""Makes the cores beside this file: ``dies.cpp`` dies under a kernel for AArch64, in a system emulator.

By hand, on Debian 12 with ``g++-aarch64-linux-gnu``, ``qemu-system-arm`` and ``dpkg-dev``; it takes some two minutes.
Kernel, C library and a shell are Debian's packages for arm64, which are downloaded and not installed.
"""

from __future__ import annotations

import base64
import gzip
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
_KERNEL = "linux-image-6.1.0-50-cloud-arm64"
_PACKAGES = (_KERNEL, "libc6", "libstdc++6", "libgcc-s1", "busybox-static")
_FLAGS = ("-O1", "-fno-optimize-sibling-calls", "-march=armv8.5-a", "-mbranch-protection=standard", "-pthread")
_LINK = ("-fstack-protector-strong", "-Wl,--build-id")
_DEATHS = (
    *("null-read", "null-write", "wild-read", "tagged-read", "recursion", "deep-recursion", "large-frame", "smash"),
    *("smash-unprotected", "abort", "exception", "double-free", "trap", "ubsan-trap", "null-call", "data-jump"),
    *("memset-null", "readonly", "unaligned-atomic", "unaligned-exclusive", "pac", "bti", "mte", "thread-overflow"),
    *("bus", "in-handler", "illegal", "division"),
)
_STACK = {"recursion": 256, "deep-recursion": 8192}
"""Limits of the stack in KiB, where not 1024."""
_LONGEST_S = 600
_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /tmp /cores
/bin/busybox mount -t proc proc /proc
echo /cores/core > /proc/sys/kernel/core_pattern
ulimit -c unlimited
{runs}
echo ALL-DONE
/bin/busybox poweroff -f
"""
_RUN = """(ulimit -s {stack}; exec /opt/dies {name})
for one in /cores/core*; do [ -f "$one" ] && {{
echo BEGIN-CORE {name}; /bin/busybox gzip -9 < "$one" | /bin/busybox base64; echo END-CORE; }}; done
/bin/busybox rm -f /cores/*
"""


def main(work: Path) -> None:
    """Build, boot, and write ``cores/*.core.xz`` and ``dies.xz``; ``work`` keeps what was downloaded."""
    work.mkdir(parents=True, exist_ok=True)
    root = work / "root"
    _download(work, root)
    program = work / "dies"
    source = HERE / "dies.cpp"
    subprocess.run(["aarch64-linux-gnu-g++", *_FLAGS, *_LINK, "-w", source, "-o", program], check=True)
    image = work / "initramfs.gz"
    image.write_bytes(gzip.compress(b"".join(_archive(root, program)), 1))
    said = _boot(next((root / "boot").glob("vmlinuz*")), image)
    (work / "said").write_text(said)
    cores = HERE / "cores"
    cores.mkdir(exist_ok=True)
    for name, text in re.findall(r"BEGIN-CORE ([\w-]+)\s+([\w+/=\s]+?)END-CORE", said):
        if name == "division":
            raise SystemExit("a division by zero is no death on AArch64")
        packed = lzma.compress(gzip.decompress(base64.b64decode(text)), preset=9 | lzma.PRESET_EXTREME)
        (cores / f"{name}.core.xz").write_bytes(packed)
        print(f"{name}: {len(packed):,} bytes")
    (HERE / "dies.xz").write_bytes(lzma.compress(program.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


def _download(work: Path, root: Path) -> None:
    if root.exists():
        return
    for name in ("lists/partial", "cache/archives/partial", "packages"):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    (work / "sources").write_text(
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n"
    )
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": work,
        "Dir::State::status": work / "status",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources",
        "Dir::Etc::sourceparts": "/dev/null",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", *options, "update"], check=True)
    subprocess.run(["apt-get", *options, "download", *_PACKAGES], cwd=work / "packages", check=True)
    for package in (work / "packages").glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)


def _archive(root: Path, program: Path) -> Iterator[bytes]:
    """The initial file system in cpio's ``newc`` format, which the kernel unpacks."""
    libraries = "usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"
    files = {"bin/busybox": root / "bin/busybox", "opt/dies": program}
    for folder in libraries:
        for name in ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-aarch64.so.1"):
            if (root / folder / name).exists():
                files[f"lib/aarch64-linux-gnu/{name}"] = root / folder / name
    files["lib/ld-linux-aarch64.so.1"] = files["lib/aarch64-linux-gnu/ld-linux-aarch64.so.1"]
    runs = "".join(_RUN.format(name=name, stack=_STACK.get(name, 1024)) for name in _DEATHS)
    for folder in ("bin", "opt", "lib", "lib/aarch64-linux-gnu", "dev"):
        yield _member(folder, 0o40755, b"")
    yield _member("dev/console", 0o20600, b"", (5, 1))
    yield _member("init", 0o100755, _INIT.format(runs=runs).encode())
    for name, path in files.items():
        yield _member(name, 0o100755, path.read_bytes())
    yield _member("TRAILER!!!", 0, b"")


def _member(name: str, mode: int, data: bytes, device: tuple[int, int] = (0, 0)) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
    head = b"070701" + b"".join(f"{one:08x}".encode() for one in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def _boot(kernel: Path, image: Path) -> str:
    machine = ("-M", "virt,mte=on", "-cpu", "max", "-m", "1G", "-smp", "1", "-nographic", "-no-reboot", "-nic", "none")
    words = ["qemu-system-aarch64", *machine, "-kernel", str(kernel), "-initrd", str(image)]
    words += ["-append", "console=ttyAMA0 quiet panic=-1"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=True)
    return done.stdout.decode("utf-8", "replace")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["TMPDIR"]).resolve())
