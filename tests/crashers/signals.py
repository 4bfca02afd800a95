"""Die by a signal: signals.py self|child|abort NUMBER."""

import os
import sys
import time

who, number = sys.argv[1], int(sys.argv[2])
if who == "self":
    os.kill(os.getpid(), number)
elif who == "abort":
    os.abort()  # the line
elif os.fork() == 0:
    os.kill(os.getppid(), number)
    os._exit(0)
time.sleep(30)
