"""Runs a command under the supervisor: ``drive.py RECORD OPTIONS COMMAND...``; what was seen is pickled to RECORD.

It stands in for the command line, so that a failure here is the supervisor's.
"""

import json
import pickle
import sys

from necropsy.capture.linux import launch
from necropsy.errors import NecropsyError


def main() -> int:
    path, options, *command = sys.argv[1:]

    def on_end(record: launch.RunRecord) -> None:
        if path == "raise":
            raise RuntimeError("a report that fails")
        if path == "crash":
            import ctypes

            ctypes.string_at(0)
        if path:
            with open(path, "wb") as file:
                pickle.dump(record, file)

    try:
        return launch.run(command, launch.RunOptions(**json.loads(options)), on_end)
    except NecropsyError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
