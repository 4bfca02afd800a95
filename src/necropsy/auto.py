"""``python -m necropsy.auto script.py``: call ``necropsy.enable()``, then run the script as ``python script.py`` would.

This process becomes the script's by exec: same process id, same files, same ``sys.argv``, nothing of necropsy loaded.
``-m MODULE`` and ``-c CODE`` work as with ``python``. ``NECROPSY=0`` in the environment switches the watching off.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NoReturn

_OFF = frozenset({"0", "no", "off", "false"})


def main() -> NoReturn:
    """Become the script."""
    arguments = sys.argv[1:]
    if not arguments:
        print("necropsy: which script? For example: python -m necropsy.auto train.py", file=sys.stderr)
        sys.exit(2)
    if os.environ.get("NECROPSY", "1").lower() not in _OFF:
        from necropsy.watch.client import enable

        enable()
    # Not in typeshed.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    command = [sys.executable, *flags, *arguments]
    if sys.platform == "win32":  # exec would start another process there
        sys.exit(subprocess.call(command))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, command)  # noqa: S606 - the very same interpreter


if __name__ == "__main__":
    main()
