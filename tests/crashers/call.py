"""Call a function of a library: call.py [--faulthandler] [--thread] [--gil] LIBRARY FUNCTION [INTEGER...]."""

import ctypes
import faulthandler
import sys
import threading

options = [word for word in sys.argv[1:] if word.startswith("--")]
library, function, *arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
if "--faulthandler" in options:
    faulthandler.enable()
crasher = getattr((ctypes.PyDLL if "--gil" in options else ctypes.CDLL)(library), function)


def call() -> None:
    crasher(*map(int, arguments))  # the line


if "--thread" in options:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
else:
    call()
