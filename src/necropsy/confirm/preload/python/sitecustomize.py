"""Runs the statements of NECROPSY_AT_START in a program's interpreter before the program, and nothing else of ours.

Python imports ``sitecustomize`` at each start (see the documentation of its module ``site``); this folder stands first
in PYTHONPATH for the runs of one experiment. The ``sitecustomize`` that would have been found without it runs first.
It works in any Python from 3.6 on.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path) != _HERE]
_ours = sys.modules.pop("sitecustomize", None)
try:
    __import__("sitecustomize")  # the one behind this one
except ImportError as _error:
    if _error.name != "sitecustomize":
        raise
if _ours is not None:
    sys.modules.setdefault("sitecustomize", _ours)

try:
    exec(os.environ.get("NECROPSY_AT_START", ""), {"__name__": "necropsy_at_start"})
except BaseException as _error:
    # `site` would only print it and go on, and the run would be one without the change.
    sys.stderr.write("necropsy: what was to be done before the program failed: %r\n" % (_error,))
    sys.stderr.flush()
    os._exit(126)
