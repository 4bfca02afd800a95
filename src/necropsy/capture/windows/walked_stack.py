"""A thread's stack of x64 Windows as it was walked, before it becomes frames of the model."""

from __future__ import annotations

from necropsy.capture.process.native_stack import NativeStack
from necropsy.model import Frame


class WalkedStack(NativeStack):
    """A thread's whole stack."""

    def __init__(self) -> None:
        super().__init__()
        self.taking: dict[int, int] = {}
        """Bytes that a frame was about to take when the thread stopped."""

    def stack_bytes(self, index: int) -> int | None:
        """As ``NativeStack.stack_bytes``; of a frame that was not laid out yet, what it would have taken.

        Compilers touch each page of a large frame (``__chkstk``) before the stack pointer moves: where the stack ends
        there, the frame that it ended for is still small.
        """
        measured = super().stack_bytes(index)
        return max(self.taking[index], measured or 0) if index in self.taking else measured

    def largest(self, count: int = 5) -> tuple[Frame, ...]:
        """The frames with the most stack bytes, largest first."""
        measured = super().largest(count)
        known = {frame.index for frame in measured}
        frames = [
            *measured,
            *(self.frame(index) for index in self.taking if index not in known and self.places.keeps(index)),
        ]
        return tuple(sorted(frames, key=lambda frame: -(frame.stack_bytes or 0))[:count])
