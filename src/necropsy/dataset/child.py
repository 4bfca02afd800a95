"""Walks over a dataset in a process of its own: ``python child.py REQUEST``, in the interpreter of the dataset.

REQUEST is a JSON file: ``target``, ``spec`` (wants as lists), ``ranges``, ``limit``, ``seconds``, ``single``, and the
paths ``journal``, ``snapshot`` and ``result``. The result is a JSON file with ``dataset`` or with ``refused``.
"""

import json
import os
import sys
import types


def main(path):
    """Answer the request in the file ``path``."""
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        sys.path[0] = os.getcwd()  # as with `python -m`; our own modules must not hide the user's
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    for place in request.get("path") or []:
        if place not in sys.path:
            sys.path.append(place)
    # necropsy need not be installed in this interpreter, nor what it depends on: only this folder is used.
    package = types.ModuleType("necropsy")
    package.__path__ = [os.path.dirname(here)]
    package.__dict__["check_dataset"] = _again
    sys.modules["necropsy"] = package
    if sys.version_info < (3, 8):
        answer = {
            "refused": {
                "code": 65,
                "text": "checking a dataset takes Python 3.8 or newer, this is %d.%d" % sys.version_info[:2],
            }
        }
    else:
        try:
            __import__("numpy")
        except ImportError as error:
            answer = {"refused": {"code": 65, "text": "checking a dataset takes NumPy: %s" % error}}
        else:
            from necropsy.dataset import answering

            answer = answering.answer(request)
    with open(request["result"] + ".part", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(request["result"] + ".part", request["result"])


def _again(*_args, **_settings):
    raise RuntimeError(
        "check_dataset() was called while its own module was imported: put the call below if __name__ == '__main__':"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        os._exit(130)
    sys.stdout.flush()
    sys.stderr.flush()
    # What a framework does at exit is not what was asked about, and threads of a loader may be at work.
    os._exit(0)
