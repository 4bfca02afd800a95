"""Commands that set variables or rename a file, in the words of Windows' command processor (cmd.exe)."""

from __future__ import annotations

import re
import shlex

_HERE = re.compile(r"(?:unset|export|mv) ")
_NAMED = re.compile(r"\$(\w+)")


def for_windows(command: str) -> str:
    r"""A command for sh as cmd.exe takes it; one of another kind as it is.

    >>> for_windows("unset OMP_NUM_THREADS")
    'set "OMP_NUM_THREADS="'
    >>> for_windows('export CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICE"; unset CUDA_VISIBLE_DEVICE')
    'set "CUDA_VISIBLE_DEVICES=%CUDA_VISIBLE_DEVICE%" & set "CUDA_VISIBLE_DEVICE="'
    """
    if _HERE.match(command) is None:
        return command
    return " & ".join(map(_one, command.split("; ")))


def _one(command: str) -> str:
    verb, *words = shlex.split(command)
    if verb == "unset":
        return " & ".join(f'set "{name}="' for name in words)
    if verb == "export":
        return " & ".join(f'set "{word}"' for word in (_NAMED.sub(r"%\1%", each) for each in words))
    return " ".join(["move", *(f'"{word}"' for word in words)]) if verb == "mv" else command
