"""A thread of native code crashes, and the interpreter shuts down."""

import ctypes
import random
import threading
import time

ready = threading.Barrier(2)


def crash() -> None:
    ready.wait()
    time.sleep(random.uniform(0.001, 0.025))
    ctypes.string_at(0)


threading.Thread(target=crash, daemon=True).start()
ready.wait()
time.sleep(random.uniform(0.001, 0.009))
