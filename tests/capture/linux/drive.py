"""Runs a command under the supervisor: ``drive.py RECORD OPTIONS COMMAND...``; what was seen is pickled to RECORD.

It stands in for the command line, so that a failure here is the supervisor's.
"""

import json
import pickle
import sys
import time
from typing import NoReturn

from necropsy.capture.linux import launch
from necropsy.errors import NecropsyError


def slow() -> None:
    """Reading a dead process takes for ever, and the tracer's name tells when it has begun."""
    from necropsy.capture.linux import dying, watch

    def read(death: object) -> NoReturn:
        watch.name_process("reading")
        time.sleep(1000)
        raise AssertionError(death)

    dying.read = read


def helpless() -> None:
    """No process is to be had for the log's tap or relay."""
    from necropsy.capture.linux import front

    def start(helper: object) -> NoReturn:
        raise BlockingIOError(11, f"no process for {helper}")

    front.Helper.start = start  # type: ignore[assignment, method-assign] # a full machine cannot be had in a test


def main() -> int:
    path, options, *command = sys.argv[1:]

    def on_end(record: launch.RunRecord) -> None:
        if path == "raise":
            raise RuntimeError("a report that fails")
        if path == "crash":
            import ctypes

            ctypes.string_at(0)
        if path not in {"", "slow", "helpless"}:
            with open(path, "wb") as file:
                pickle.dump(record, file)

    if path == "slow":
        slow()
    if path == "helpless":
        helpless()

    try:
        return launch.run(command, launch.RunOptions(**json.loads(options)), on_end)
    except NecropsyError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
