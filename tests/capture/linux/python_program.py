"""A Python program whose stacks are hard to read: names in any script, comprehensions, generators, long tables of lines."""

PROGRAM = (
    """
import ctypes, os, threading, time

class Größe:
    def innermost(self, given):
        return [
            one for one in (
                ctypes.string_at(given),
            )
        ]

def 名前(given):
    x = 1


    y = (x +
         Größe().innermost(given))
    return y

def generated(given):
    yield 名前(given)

def waiting():
    global waits
    waits = threading.get_native_id()
    while True:
        time.sleep(
            3600,
        )

def many_lines(given):
    if not given:
        return None
"""
    + "    given = given + 0\n" * 300
    + """
    return list(
        generated(given)
    )

waits = None
threading.Thread(target=waiting, daemon=True).start()
while not waits or open(f"/proc/self/task/{waits}/syscall").read().split()[0] not in ("23", "35", "230", "270"):
    time.sleep(0.01)  # select, nanosleep, clock_nanosleep or pselect6: it sleeps, and does not wait for the GIL
for each in sorted([1], key=lambda given: many_lines(given)):
    pass
"""
)
