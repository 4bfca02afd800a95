"""Threads start and end beside a fork; the child crashes, and the parent looks once how it is."""

import ctypes
import os
import sys
import threading

threads = [threading.Thread(target=sum, args=(range(400_000),)) for _ in range(4)]
for thread in threads:
    thread.start()
child = os.fork()
if child == 0:
    ctypes.string_at(0)
for thread in threads:
    thread.join()
ended, status = os.waitpid(child, os.WNOHANG)
if not ended:
    os.waitpid(child, 0)
sys.exit(os.WTERMSIG(status) if ended else 3)
