"""A daemon thread crashes while the interpreter ends."""

import ctypes
import threading
import time


def crash() -> None:
    time.sleep(0.0003)
    ctypes.string_at(0)


threading.Thread(target=crash, daemon=True).start()
