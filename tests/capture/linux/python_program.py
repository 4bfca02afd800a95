"""A Python program whose stacks are hard to read: names in any script, comprehensions, generators, long tables of lines."""

PROGRAM = (
    """
import ctypes, threading, time

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

threading.Thread(target=waiting, daemon=True).start()
time.sleep(0.2)
for each in sorted([1], key=lambda given: many_lines(given)):
    pass
"""
)
