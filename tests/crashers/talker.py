"""Says what other deaths say, long before it dies of something else."""

import ctypes
import sys

print("I0000 00:00:1763683200.123456 7 old.cc:1] retrying after: Check failed: a == b (1 vs. 2)", file=sys.stderr)
print("the last run ended with: double free or corruption (fasttop)", file=sys.stderr)
print("and before that: *** stack smashing detected ***: terminated", file=sys.stderr)
print("once: terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)


def call() -> None:
    ctypes.CDLL(sys.argv[1]).null_read()  # the line


call()
