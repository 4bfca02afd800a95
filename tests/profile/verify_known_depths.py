"""Prints what `necropsy profile` says of programs of known depth, beside the truth.

    python tests/profile/verify_known_depths.py [--busy]

needs gcc and g++. With ``--busy``, the programs in C and C++ go on with shallow calls for a second after they were deep. The exit code is 1 if a peak is more than a page from the truth, or if a function is named that took less than another.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from known_depths import build, native, python


def main() -> int:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--busy", action="store_true", help="shallow calls for a second after the deep ones")
    busy = parser.parse_args().busy
    with tempfile.TemporaryDirectory() as folder:
        program, library = build(Path(folder))
        rows = [*native(Path(folder), program, busy=busy), *python(Path(folder), library)]
    print(f"{'program':<16}{'depth':>12}{'peak':>12}{'error':>8}  function with the largest share")
    for one in rows:
        peak = one.stack["peak"] if one.stack else None
        row = one.largest
        said = "none" if row is None else f"{row['times']:,} x {row['frame_bytes']:,} {row['function']}"
        said += ", partial" if row is not None and row["partial"] else ""
        wrong = "" if one.is_named else f"  (not {one.wanted})"
        print(f"{one.name:<16}{one.depth:>12,}{peak or 0:>12,}{one.error if peak else '?':>8}  {said[:90]}{wrong}")
    close, named = sum(one.is_close for one in rows), sum(one.is_named for one in rows)
    false = sum(one.named is not None and not one.is_named for one in rows)
    print(f"{close} of {len(rows)} peaks within a page; {named} functions right, {false} wrong, the others not found")
    return int(close < len(rows) or false > 0)


if __name__ == "__main__":
    raise SystemExit(main())
