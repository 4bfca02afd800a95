"""Keeps the environment that doctor was started in, and runs doctor without harmful variables.

A sanitizer in LD_PRELOAD, an old library in LD_LIBRARY_PATH or packages in PYTHONPATH would affect doctor too. It
restarts without them and passes their values along in one variable.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False  # as in ``typing``: this is loaded before anything else
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CARRIED = "_NECROPSY_DOCTOR_STARTED_WITH"
HARMFUL = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH")
# ``-c`` puts the working directory first on the path, and nothing is to be imported from there. It is the same necropsy
# again; what else only the folders of PYTHONPATH have is still found, behind all others.
_START = (
    "import sys; sys.argv[:] = {argv!r}; sys.path[:1] = [{package!r}]; import necropsy; del sys.path[0]; "
    "sys.path += [one for one in {paths!r} if one not in sys.path]; "
    "from necropsy.cli import main; sys.exit(main())"
)


def start_again(words: Sequence[str], more: Mapping[str, str]) -> None:
    """Replace this process by one without harmful variables, if any is set; ``more``: variables of its launcher."""
    if os.name == "nt" or CARRIED in os.environ:
        return
    carried = {name: os.environ[name] for name in HARMFUL if name in os.environ}
    if not carried:
        return
    variables = {name: value for name, value in os.environ.items() if name not in HARMFUL}
    variables |= {**more, CARRIED: json.dumps(carried)}
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    paths = [os.path.abspath(one) for one in carried.get("PYTHONPATH", "").split(os.pathsep) if one]  # noqa: PTH100
    code = _START.format(argv=[sys.argv[0], *words], package=package, paths=paths)
    try:
        os.execve(sys.executable, [sys.executable, "-c", code], variables)  # noqa: S606 - ourselves
    except OSError:
        return  # as it is: better than nothing


def original(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that doctor was started with."""
    found = dict(environment)
    carried = found.pop(CARRIED, None)
    if carried is not None:
        with suppress(ValueError, AttributeError):
            found.update({str(name): str(value) for name, value in json.loads(carried).items()})
    return found
