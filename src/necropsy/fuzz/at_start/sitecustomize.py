"""Records the calls that a program makes of the target of ``necropsy fuzz``, and changes nothing else in it.

Python imports ``sitecustomize`` at each start (see the documentation of its module ``site``); this folder stands first
in PYTHONPATH for the command. The ``sitecustomize`` that would have been found without it runs first. What fails here
costs the recording, never the program.
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
    import runpy

    _target = os.path.join(os.path.dirname(_HERE), "target")
    _values = runpy.run_path(os.path.join(_target, "argument_data.py"))
    _recorder = runpy.run_path(os.path.join(_target, "recorder.py"))
    _recorder["begin"](os.environ["NECROPSY_FUZZ_RECORD"], _values["data_of"])
except Exception:
    pass
