"""A fault at the first instruction of a line, or of a function, is that line's and that function's."""

from __future__ import annotations

from pathlib import Path

from harness import build, dying

from necropsy.capture.linux.inspect import crash_builder

# At -O1 each function begins with the access that faults, and another function ends right before it.
PROGRAM = """
#define ALONE __attribute__((noinline, optimize("align-functions=1")))
ALONE int before(int n) { return n * 3; }
ALONE int first(volatile int *at) { return *at; }
int main(int count, char **words) {
  (void)words;
  return before(count) + first((volatile int *)0x10);
}
"""


def test_a_fault_at_the_first_instruction_has_its_own_line(tmp_path: Path) -> None:
    program = build(tmp_path, PROGRAM, "-g", "-O1", name="first")
    with dying([program]) as death:
        crash = crash_builder.capture(death)
    thread = crash.crashed_thread
    assert thread is not None
    frame, caller = (thread.frames or ())[:2]
    assert crash.registers is not None
    assert frame.address == crash.registers["rip"]
    assert (frame.function, Path(frame.source or "").name, frame.line) == ("first", "first.c", 4)
    assert (caller.function, caller.line) == ("main", 7)
