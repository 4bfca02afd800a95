"""What a process said last: glibc's words, messages in the log and in memory, the C++ exception that ended it."""

from __future__ import annotations

import re
import time

from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.target import Target
from necropsy.capture.linux.inspect.threads import Crashed, ThreadReader
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import RecordingMemory
from necropsy.model import CppException, Instruction, LastWords, Message, Thread

_LONGEST = 4096
_MOST_SEARCHED = 4 << 20
"""Bytes of memory whose pages are looked at for the words of a C library that is not at hand."""
_CHECKS = {"check-failed", "non-ok-status"}
_TRAPS = frozenset({"ud2", "ud1", "int3", "brk", "udf"})
_REPORTING_FRAMES = 40
"""How many frames above abort() are searched for a failed CHECK or an uncaught exception."""
_TERMINATES = (
    "std::terminate()",
    "__cxxabiv1::__terminate",
    "__gnu_cxx::__verbose_terminate_handler",
    "__clang_call_terminate",
    "__cxa_call_terminate",
    "__cxa_call_unexpected",
    "std::__terminate",
)
_UNWINDS = "__gxx_personality_v0"
_TRANSLATES = re.compile(
    r"(?:pybind11|nanobind)::.*(?:translate_exception|translate_local_exception|default_exception_translator|raise_err|handle_nested)"
)


def _scan(text: str, where: str = "log") -> tuple[Message, ...]:
    from necropsy.formats import log

    return log.scan(text, where=where)


class LastWordsReader:
    """Reads the last words of one dead process; ``memory`` keeps the pages that are evidence."""

    def __init__(  # noqa: PLR0917 - the parts of the process that its reader has
        self,
        death: CrashContext,
        gaps: Gaps,
        target: Target,
        memory: RecordingMemory,
        files: MappedFiles,
        crashed: Crashed,
        threads: ThreadReader,
    ) -> None:
        self._death, self._gaps, self._target, self._memory = death, gaps, target, memory
        self._files, self._crashed, self._threads = files, crashed, threads

    def abort_message(self) -> str | None:
        """What glibc printed before it aborted, from its ``__abort_msg``, or None.

        ``struct abort_msg_s {unsigned int size; char msg[];}`` (glibc, include/stdlib.h; the symbol is GLIBC_PRIVATE,
        kept for debuggers). musl has none.
        """
        libc = self._files.named("libc.so.6", "libc-2.")
        if libc is not None and libc.elf is None and self._ended_itself():
            return self._unnamed_abort_message()
        variable = None if libc is None else libc.symbol("__abort_msg")
        pointer = None if variable is None else self._memory.u64(variable)
        if not pointer:
            return None
        text = self._memory.c_string(pointer + 4, _LONGEST)
        return text.strip() or None if text is not None else None

    def _unnamed_abort_message(self) -> str | None:
        """The same of a core whose C library is not at hand, so that nobody knows where its variable is.

        glibc maps whole pages for the structure, and ``size`` is theirs: hardly anything else begins so.
        """
        page, looked_at = self._memory.page, 0
        for one in self._target.maps:
            if one.path is not None or one.permissions[:2] != "rw" or one.high - one.low > _MOST_SEARCHED:
                continue
            for at in range(one.low, one.high, page):
                looked_at += page
                if looked_at > _MOST_SEARCHED:
                    return None
                size = self._target.memory.u32(at)
                if not size or size % page or size > one.high - at:
                    continue
                text = self._memory.c_string(at + 4, min(_LONGEST, size - 4))
                if text and text.endswith("\n") and text.strip().isprintable() and len(text) + 5 <= size:
                    return text.strip()
        return None

    def _innermost(self, count: int) -> list[str | None]:
        unwound = self._threads.unwound
        return [place.function for place in unwound.places.first(count)] if unwound is not None else []

    def left_behind(self, threads: tuple[Thread, ...], read: Instruction | None) -> LastWords | None:
        """What code and memory have of the last words, where the program ended itself and stderr was not read."""
        if self._death.log_tail is not None or not self._ended_itself():
            return None
        if (
            self._crashed.info is not None
            and self._crashed.info.signal != "SIGABRT"
            and (read is None or read.mnemonic not in _TRAPS)
        ):
            return None  # the processor refused an instruction that was meant to be executed
        from necropsy.capture.linux.stderr import exit_messages, stdio_buffers
        from necropsy.capture.process import unread_stderr
        from necropsy.capture.process.code_constants import Code

        frames = next((thread.frames for thread in threads if thread.crashed and thread.frames), ())
        streams = stdio_buffers.streams(self._memory, self._files)
        stack = self._threads.stacks.get(self._crashed.tid)
        code = Code(self._memory, self._target.maps, self._files.function)
        buffers, spans = [one.buffer for one in streams], exit_messages.spans(self._target.maps)
        found = unread_stderr.last_words(code, frames, stack, buffers, spans)
        pending = [(one.name, one.pending) for one in streams]
        return found or unread_stderr.never_written(pending) or self._of_runtime()

    def _of_runtime(self) -> LastWords | None:
        from necropsy.capture.linux.stderr import exit_messages
        from necropsy.capture.process import exit_message_memory as of_runtimes

        until = time.monotonic() + exit_messages.ALONE_S
        spans = exit_messages.spans(self._target.maps)
        text = of_runtimes.words(self._target.memory, spans, None, lambda: time.monotonic() < until)
        return LastWords(text=text, where="found in memory, not read from stderr") if text else None

    def _ended_itself(self) -> bool:
        info = self._crashed.info
        if info is None or info.signal not in {"SIGABRT", "SIGILL", "SIGTRAP"}:
            return False
        return info.sender in {None, self._death.pid}

    def messages(self, abort_message: str | None, words_left: LastWords | None) -> tuple[Message, ...] | None:
        """What the log says, and what only memory says; None where neither could be seen."""
        said = self._said(_scan(self._death.log_tail) if self._death.log_tail else ())
        kinds = {message.kind for message in said}
        left = _scan(abort_message, where="__abort_msg") if abort_message else ()
        said = (*said, *(message for message in left if message.kind not in kinds))
        if not said and words_left is not None:
            found = _scan(words_left.text, where=f"memory of thread {self._crashed.tid}, not read from stderr")
            # The words of a CHECK are anybody's, unless the code that reports one is at work: see ``_said``.
            said = tuple(message for message in found if message.kind not in _CHECKS)
        if said or abort_message or self._death.log_tail is not None:
            return said
        self._gaps.add("messages", "what the process wrote was not seen, and it left no message in memory")
        return None

    def _said(self, said: tuple[Message, ...]) -> tuple[Message, ...]:
        stack = self._threads.stacks.get(self._crashed.tid)
        aborted = self._crashed.info is not None and self._crashed.info.signal in {"SIGABRT", "SIGILL", "SIGTRAP"}
        if stack is None or not aborted or any(message.kind in _CHECKS for message in said):
            return said
        from necropsy.capture.process import memory_messages

        if not memory_messages.reports_a_check(self._innermost(_REPORTING_FRAMES)):
            return said
        text = memory_messages.check_text(self._memory, self._target.maps, stack)
        found = _scan(text, where=f"memory of thread {self._crashed.tid}") if text else ()
        return (*said, *(message for message in found if message.kind in _CHECKS))

    def cpp_exception(self) -> CppException | None:
        """The C++ exception that nobody caught, or that is being turned into one of Python's."""
        stack = self._threads.stacks.get(self._crashed.tid)
        innermost = self._innermost(_REPORTING_FRAMES)
        if stack is None:
            return None
        named = [one for one in innermost if one is not None]
        # Where a handler is being looked for and nobody may catch it, the end of that is std::terminate.
        ends = _TERMINATES if not self._ended_itself() else (*_TERMINATES, _UNWINDS)
        is_ended = any(one.startswith(ends) for one in named)
        if not is_ended and not any(one is not None and _TRANSLATES.match(one) for one in innermost[:16]):
            return None
        from necropsy.capture.process.cpp_exception import CppExceptionReader

        return CppExceptionReader(self._memory, self._target.maps, self._files).in_flight(stack)
