"""Rotates the logs of a folder and keeps an index of them that the library reads."""

import argparse
import ctypes
import datetime
import logging
import os
import pathlib
import shutil
import stat
import sys
import tempfile

POLICY = {"keep": 3, "block": 4096, "pattern": "*.log", "mode": 0o640, "compact": True}
HERE = pathlib.Path(__file__).resolve().parent

log = logging.getLogger("rotate")


class Index:
    """A file with a block for each log."""

    def __init__(self, path, library):
        self.path = path
        self.library = library
        self.library.index_map.argtypes = [ctypes.c_char_p]
        self.library.index_map.restype = ctypes.c_long
        self.library.index_sum.restype = ctypes.c_long
        self.entries = []

    def build(self, logs):
        with open(self.path, "wb") as file:
            for path in logs:
                text = path.read_bytes()[: POLICY["block"]]
                file.write(text.ljust(POLICY["block"], b"\0"))
                self.entries.append(path.name)
        log.info("%d entries", len(self.entries))

    def attach(self):
        size = self.library.index_map(str(self.path).encode())
        if size < 0:
            raise OSError(f"cannot map {self.path}")
        return size

    def compact(self, keep):
        del self.entries[keep:]
        os.truncate(self.path, 0)

    def total(self):
        return self.library.index_sum()


class Folder:
    def __init__(self, path, policy):
        self.path = pathlib.Path(path)
        self.policy = policy
        self.removed = []

    def prepare(self, source):
        if self.path.exists():
            shutil.rmtree(self.path)
        shutil.copytree(source, self.path)
        for path in self.logs():
            path.chmod(self.policy["mode"])

    def logs(self):
        return sorted(self.path.glob(self.policy["pattern"]))

    def rotate(self):
        day = datetime.date(2026, 11, 23)
        for number, path in enumerate(self.logs()):
            target = path.with_name(f"{path.stem}-{day:%Y%m%d}.log")
            os.rename(path, target)
            if number >= self.policy["keep"]:
                target.unlink()
                self.removed.append(target.name)

    def clean(self):
        for path in self.path.iterdir():
            if path.suffix in {".tmp", ".bak"}:
                os.remove(path)
            elif path.stat().st_mode & stat.S_IWOTH:
                log.warning("%s can be written by all", path)


def in_child(action):
    """Do something in a process of its own."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", default="logs")
    parser.add_argument("--keep", type=int, default=POLICY["keep"])
    options = parser.parse_args()
    library = ctypes.CDLL(str(HERE / "native.so"))
    work = pathlib.Path(tempfile.mkdtemp(prefix="rotate-"))
    folder = Folder(work / "logs", {**POLICY, "keep": options.keep})
    folder.prepare(options.source)
    folder.rotate()
    if in_child(folder.clean) != 0:
        print("could not clean", file=sys.stderr)
        return 1
    os.chdir(work)
    index = Index(pathlib.Path("index.bin"), library)
    index.build(folder.logs())
    index.attach()
    if POLICY["compact"]:
        index.compact(options.keep)
    print("sum", index.total(), "removed", len(folder.removed))
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
