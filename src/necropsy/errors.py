"""What can go wrong in necropsy itself. What a crash hides is a ``Gap`` in its report, never an error.

::

    NecropsyError                 125   the tool failed; the program under it did not
    ├── CommandNotFoundError      127   as a shell says it
    ├── NotExecutableError        126   as a shell says it
    ├── AttachRefusedError        125   the kernel does not let us read that process
    ├── RegistryError             125   Windows does not let us change its registry
    ├── InputError                 65   the input is there but is not what it should be
    │   ├── OptionError             2   an option or an argument is not what it should be; 125 under `run`
    │   ├── UnreadableReportError  65
    │   ├── UnknownCodeError       65   not an exit code, a signal or the name of a rule
    │   └── UnreadableStoreError   65   not a store of a triage, a damaged one, or one of a newer version
    ├── NoInputError               66   the file is missing or may not be read
    │   └── NoCoreError            66   no core file was found
    ├── DeliveryError              69   a receiver of `necropsy send` did not take everything
    ├── RuleError                  70   a rule file breaks the house rules: a defect of ours
    └── StoreBusyError             75   another triage is writing to the store

65, 66, 69, 70 and 75 are EX_DATAERR, EX_NOINPUT, EX_UNAVAILABLE, EX_SOFTWARE and EX_TEMPFAIL of sysexits.h; 125 to
127 are what env(1) and timeout(1) use.
"""

from __future__ import annotations

from typing import ClassVar


class NecropsyError(Exception):
    """Root. ``exit_code``: what the command ends with; ``hint``: what to do, set on the error itself if it varies."""

    exit_code: ClassVar[int] = 125
    hint: str | None = None


class CommandNotFoundError(NecropsyError):
    """There is no such command in PATH."""

    exit_code = 127
    hint = "give the command as you would type it without necropsy, e.g. necropsy run python train.py"


class NotExecutableError(NecropsyError):
    """The file is there, but the kernel does not run it."""

    exit_code = 126
    hint = "check that it is a program that this system runs, and that you may execute it"


class AttachRefusedError(NecropsyError):
    """The kernel does not let us read that process."""

    hint = (
        "you can only attach to your own processes; if /proc/sys/kernel/yama/ptrace_scope is 1 or higher "
        "(Ubuntu's default), run it with sudo; in a container, add --cap-add=SYS_PTRACE"
    )


class RegistryError(NecropsyError):
    """Windows does not let us change its registry."""

    hint = "run it in a terminal that was started as administrator (right click, Run as administrator)"


class InputError(NecropsyError):
    """The input is not what it should be."""

    exit_code = 65


class OptionError(InputError):
    """An option or an argument is not what it should be; under ``run``, whose codes are the command's, it is 125."""

    exit_code = 2


class UnreadableReportError(InputError):
    """Not a report of ours, or a damaged one."""

    hint = "reports are the files of `necropsy run --json` and `--output`, and those that `necropsy list` shows"


class UnknownCodeError(InputError):
    """Neither an exit code, nor a signal, nor a rule."""

    hint = "try 0xC0000409, -1073740791, 139, -11 or SIGSEGV, or the name of a rule such as stack-smash"


class UnreadableStoreError(InputError):
    """Not a store of ours, a damaged one, or one that a newer necropsy wrote."""


class NoInputError(NecropsyError):
    """The file is missing or may not be read."""

    exit_code = 66


class NoCoreError(NoInputError):
    """No core file was found where one is looked for."""

    hint = "`necropsy open FILE` opens one from another place; `necropsy run` needs none"


class DeliveryError(NecropsyError):
    """A receiver of `necropsy send` refused something, or did not answer."""

    exit_code = 69


class RuleError(NecropsyError):
    """A rule file that breaks the house rules."""

    exit_code = 70


class StoreBusyError(NecropsyError):
    """Another triage holds the store."""

    exit_code = 75
