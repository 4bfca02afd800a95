"""Coverage-guided fuzzing of all that reads a minidump; run by hand: ``make fuzz``.

It needs ``pip install atheris``. What must not happen is an exception, here or in a part that the reading guards. Inputs
that once failed lie in ``corpus/`` and are replayed by ``tests/fuzz/test_fuzz_corpus.py``.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
_FAILED = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning)(?:: |$)")
_LONGEST_S = 0.5
"""Seconds for walking the stacks of one input."""


def read(data: bytes, images: tuple[Path, ...] = ()) -> None:
    """Read one input as ``necropsy open`` does.

    Raises:
        AssertionError: a part of the reading failed otherwise than by saying what is wrong with the dump.

    """
    from necropsy.capture import open_minidump
    from necropsy.errors import InputError
    from necropsy.formats.minidump import parse

    try:
        dump = parse(data)
    except InputError:
        return
    crash = open_minidump.crash_of(dump, images=images, budget_s=_LONGEST_S)
    failed = [gap for gap in crash.gaps if _FAILED.match(gap.why)]
    assert not failed, failed


def main() -> None:
    """``fuzz_minidump.py [libFuzzer's options] [folder of inputs]``."""
    import atheris

    sys.path.insert(0, str(FOLDER.parent))
    with atheris.instrument_imports(include=["necropsy"]):
        from necropsy.capture import open_minidump as _  # noqa: F401 - instrumented by being imported here

    import seeds

    folder = Path(tempfile.mkdtemp(prefix="necropsy-fuzz-"))
    seeds.write_images(folder / "images")
    seeds.write_seeds(folder / "seeds")
    atheris.Setup([*sys.argv, str(folder / "seeds")], lambda data: read(data, (folder / "images",)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
