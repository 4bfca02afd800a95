"""Imports modules one by one and writes how each import went: it runs in the interpreter that is examined.

Its text is handed to that interpreter with ``-c``, so that ``sys.path`` is that of a program. Python 3.6 is enough, and
nothing of necropsy is imported. The arguments are the file for the lines of JSON, then the modules.
"""

import sys

# The working directory may have modules of any name.
path = list(sys.path)
base = getattr(sys, "base_prefix", sys.prefix)
sys.path[:] = [one for one in path if one.startswith((base, sys.prefix)) and "-packages" not in one]

import importlib
import json
import os
import time
from typing import Any, Optional

resource: Any = None  # there is none on Windows
try:
    import resource
except ImportError:
    pass

sys.path[:] = path


def read_bytes() -> Optional[int]:
    """Bytes that this process has read from storage; None where nobody counts them."""
    return None if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def place_of(error: BaseException) -> Optional[str]:
    """The file whose code raised the exception."""
    trace = error.__traceback__
    file = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if os.path.isabs(name):
            file = name
        trace = trace.tb_next
    return file


def main() -> None:
    """Import them all; at the end raise what the first failing import has raised, for the supervisor to see."""
    journal = open(sys.argv[1], "a", encoding="utf-8", errors="backslashreplace")
    names = sys.argv[2:]
    sys.argv[:] = [""]
    process = os.getpid()
    failed: Optional[BaseException] = None

    def note(**told: object) -> None:
        # A module may fork while it is imported: what its child does is not the import's.
        if os.getpid() == process:
            journal.write(json.dumps(told) + "\n")
            journal.flush()

    start, cpu = time.time(), time.process_time()
    for name in names:
        note(begin=name)
        try:
            importlib.import_module(name)
        except BaseException as error:
            lines = str(error).strip().splitlines() or [""]
            text = "%s: %s" % (type(error).__name__, lines[0]) if lines[0] else type(error).__name__
            note(raised=name, text=text[:1000], message=str(error)[:4000], place=place_of(error))
            if isinstance(error, KeyboardInterrupt):
                raise
            failed = failed or error
        else:
            note(imported=name)
    note(done=True, seconds=time.time() - start, cpu_s=time.process_time() - cpu, read_bytes=read_bytes())
    if failed is not None:
        raise failed


main()
