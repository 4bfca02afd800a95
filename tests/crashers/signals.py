"""Die by a signal: signals.py self|child|abort|alarm NUMBER."""

import os
import signal
import sys
import time

who, number = sys.argv[1], int(sys.argv[2])
if who == "self":
    os.kill(os.getpid(), number)
elif who == "abort":
    os.abort()  # the line
elif who == "alarm":
    signal.setitimer(signal.ITIMER_REAL, 0.05)
elif os.fork() == 0:
    os.kill(os.getppid(), number)
    os._exit(0)
time.sleep(30)
