"""Only an exit status is known.

What happened
-------------
The program ended with a code that is not 0, and nothing else was seen: no signal's details, no stack, no known
message in the log. Such a number is a hint at best. Codes above 128 are usually 128 plus the number of a signal, as
shells report them. A negative one is a signal, as Python's ``subprocess`` reports it. 1 is what Python returns after
an exception. Large numbers that begin with 0xC0000 come from Windows.

How to be sure
--------------
Run it again under ``necropsy run``, which observes the crash itself. ``necropsy explain CODE`` lists what the number
can mean, the most frequent cause first, and how to check each. On Windows, the event log has a record of the crash.
Event 1000 names the library, event 1001 the subcode of 0xC0000409.

How to fix it now
-----------------
``necropsy run python train.py``. If it crashes on a machine without necropsy, ``python -X faulthandler train.py`` at
least prints the Python lines.

How to prevent it
-----------------
Keep stderr. Do not end programs by ``os._exit(n)`` or ``sys.exit(n)`` without a message.

What it is often mistaken for
-----------------------------
A diagnosis. 139 says *a segmentation fault*, not why; 137 does not say *out of memory*; 0xC0000409 hardly ever is a
stack overrun.

Sources
-------
- https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html
- https://docs.python.org/3/library/subprocess.html#subprocess.CompletedProcess.returncode
"""

from __future__ import annotations

from necropsy.model import Crash, Culprit, Evidence, Fix, LastWords, Possibility, PythonPlace
from necropsy.predicates import messages, quote, signal_of
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import quoting
from necropsy.rules.culprit import culprit_of, innermost, own_place, spell
from necropsy.rules.exit_causes import causes_of, what_is
from necropsy.rules.last_words import as_evidence, in_a_sentence, last_words
from necropsy.rules.python import place_in, python_culprit
from necropsy.rules.windows_loader import RECORD
from necropsy.rules.wording import short

_SHOWN = 160
"""Characters of another process's message that a summary repeats."""


def _match(crash: Crash) -> Finding | None:
    floats = _of_floats(crash)
    if crash.fault is not None and not floats:
        return None
    if crash.exit is not None and crash.exit.kind == "lost" and crash.exit.text:
        return _lost(crash, crash.exit.text)
    seen = _seen(crash)
    dumps = messages(crash, "faulthandler")
    if seen is None and not dumps:
        return None
    evidence: Found = _ended(crash, seen) if seen is not None else ()
    place = (place_in(dumps[-1]) if dumps else None) or _told_place(crash)
    if dumps:
        evidence += (quote(dumps[-1], "Python's faulthandler caught a signal"),)
    end = (
        f"The program ended with {seen}{_means(crash)}{_by_whom(crash)}"
        if seen
        else f"Python's faulthandler saw: {dumps[-1].fields['what']}"
    )
    left = _own_words(crash) if crash.fault is None and _by_itself(crash) else None
    more = (
        f"; {'faulthandler shows Python' if dumps else 'Python was'} at {spell(place)}"
        + ("" if left is not None else ", and nothing says why")
        if place
        else ("" if left is not None else "; nothing else was seen that says why")
    ) + (f". {in_a_sentence(left).removesuffix('.')}" if left is not None else "")
    what = (
        what_is(crash.exit) if crash.exit is not None and seen is not None and place is None and left is None else None
    )
    return Finding(
        evidence=evidence + _shown(crash) + as_evidence(left),
        last_words=left,
        summary=f"{end}. {_UNMASKED}" if floats else f"{end}{more}." + (f" {what}." if what is not None else ""),
        confidence="possible",
        culprit=Culprit(python=place) if place else _first_shown(crash),
        fixes=_fixes(crash),
        possible=causes_of(crash),
    )


def _own_words(crash: Crash) -> LastWords | None:
    """The last message; of several lines, those known as a library's reason."""
    block, known = last_words(crash), messages(crash, "last-words")
    if block is None or not known or known[-1].text in block.text:
        return block
    return LastWords(text=known[-1].text, where=block.where)


def _by_itself(crash: Crash) -> bool:
    """The process itself was seen to end by its own code, so the last message is its own."""
    end = crash.exit
    return crash.pid is not None and end is not None and end.kind == "exited" and end.ntstatus is None


_UNMASKED = (
    "A calculation with floating-point numbers raised this, which happens only if code enabled it: "
    "_controlfp, or a library that changed the processor's state and did not put it back."
)


def _of_floats(crash: Crash) -> bool:
    """A floating-point exception on Windows; by default the result is inf or nan instead."""
    fault = crash.fault
    return (
        fault is not None
        and (fault.code or "").startswith("FPE_FLT")
        and crash.exit is not None
        and crash.exit.ntstatus is not None
    )


def _told_place(crash: Crash) -> PythonPlace | None:
    """From pystack's output."""
    thread = crash.crashed_thread
    return own_place(thread) if thread is not None else None


def _first_shown(crash: Crash) -> Culprit | None:
    """The function that raised a Windows exception, or a text's innermost one, which may not have crashed."""
    if _raised(crash):
        return culprit_of(crash)
    threads = [thread for thread in crash.threads or () if thread.frames]
    frame = innermost(threads[0].frames or ()) if len(threads) == 1 else None
    if frame is None:
        return None
    module = frame.module.rsplit("/", 1)[-1] if frame.module else None
    return Culprit(function=frame.function, module=module, source=frame.source, line=frame.line)


def _by_whom(crash: Crash) -> str:
    """The function that called exit(3), if the process itself was seen to end."""
    first = _first_shown(crash) if _by_itself(crash) else None
    return f", by a call of exit() in {short(first.function)}" if first is not None and first.function else ""


def _shown(crash: Crash) -> Found:
    first = _first_shown(crash)
    if first is None or first.function is None:
        return ()
    within = f" in {first.module}" if first.module else ""
    if _by_itself(crash):
        return (Evidence(claim="who called exit()", seen=f"{first.function}{within}", where="the process at its end"),)
    if _raised(crash):
        where = "stack of the thread that crashed"
        return (Evidence(claim="who raised it", seen=f"{first.function}{within}", where=where),)
    where = "text" if crash.registers is None else "the process"
    return (Evidence(claim="the only stack that is shown", seen=f"{first.function}{within}", where=where),)


def _raised(crash: Crash) -> bool:
    """A Windows exception whose stack is known from a dump or a debugger."""
    status = crash.exit.ntstatus if crash.exit is not None else None
    thread = crash.crashed_thread
    return status is not None and thread is not None and bool(thread.frames)


def _ended(crash: Crash, seen: str) -> Found:
    """With the sentence that reports it."""
    found: Found = (Evidence(claim="how the process ended", seen=seen, where="exit status"),)
    text = crash.exit.text if crash.exit is not None else None
    if text is not None and " " in text.strip() and text not in seen:
        found += (Evidence(claim="who says so", seen=text.strip(), where="text"),)
    return found


def _fixes(crash: Crash) -> tuple[Fix, ...]:
    if any(gap.part == "fault" and "ptrace" in gap.why for gap in crash.gaps):
        # It was run under necropsy, which could not look.
        fix = Fix(
            text="Let the kernel write a core, which necropsy then reads, or run it where necropsy may use ptrace.",
            command="ulimit -c unlimited",
        )
        return (fix,)
    run = Fix(text="Run it under necropsy, so that the crash itself is observed.", command="necropsy run python ...")
    if _of_floats(crash):
        named = culprit_of(crash)
        place = short(named.function) if named is not None and named.function else "the place where it stopped"
        return (
            Fix(text=f"Look in {place} for a divisor of 0, an overflow or an invalid operand such as log(-1) or 0/0."),
            Fix(text="Look for _controlfp, _control87 or _MM_SET_EXCEPTION_MASK in the libraries that are loaded."),
        )
    on_windows = crash.exit is not None and crash.exit.ntstatus is not None
    if on_windows and _looked_at(crash) and causes_of(crash):
        return (RECORD,) if crash.registers is not None else (RECORD, run)
    if on_windows and _looked_at(crash):
        # It was looked at while it died, or left a dump: what is left is to look up who raised this, and why.
        who = culprit_of(crash) if _raised(crash) else None
        return (
            Fix(
                text=f"Look up this code in the documentation of {short(who.function) if who and who.function else 'the library that raised it'}: "
                "an exception number of its own is how that library reports a fatal error."
            ),
            RECORD,
        )
    return (RECORD, run) if on_windows else (run,)


def _looked_at(crash: Crash) -> bool:
    """The process itself was seen, not only text about it."""
    return crash.registers is not None or crash.modules is not None or _raised(crash)


def _seen(crash: Crash) -> str | None:
    """The number as spelled; None after success or if unknown."""
    end = crash.exit
    if end is None or end.kind not in {"exited", "signaled"} or (end.kind == "exited" and end.code in {None, 0}):
        return None
    if end.ntstatus is not None:
        status = end.ntstatus
        subcode = f", subcode {status.fast_fail.code}" if status.fast_fail is not None else ""
        return f"{status.value} ({status.signed})" + (f", {status.name}" if status.name else "") + subcode
    return f"exit code {end.code}" if end.code is not None else f"the signal {end.signal}"


def _means(crash: Crash) -> str:
    end, signal = crash.exit, signal_of(crash)
    if end is None:
        return ""
    if end.text is not None:
        # A sentence is evidence; a bare number may have been spelled in another way than the model's.
        return "" if " " in end.text.strip() or end.text in (_seen(crash) or "") else f" ({end.text.rstrip('.')})"
    return f", which is what a shell gives for {signal}" if signal is not None and end.code is not None else ""


# ---------------------------------------------------------------- gone without a word


def _lost(crash: Crash, text: str) -> Finding:
    """Its launcher noticed that it is gone, but not how it ended."""
    said = text.strip().rstrip(".")
    shown = said if len(said) <= _SHOWN else said[:_SHOWN] + " ..."
    told = messages(crash, "process-lost")
    test = next((message.fields["test"] for message in told if "test" in message.fields), None)
    by = told[0].fields.get("by", "") if told else ""
    doing = f" while it ran {test}" if test else ""
    others = tuple(quote(message, "and more of it") for message in told if message.text != text.strip())[:2]
    culprit = python_culprit(crash)
    waited: Found = ()
    if culprit is not None and culprit.python is not None:
        waited = (Evidence(claim="where its parent was", seen=spell(culprit.python), where="traceback"),)
    return Finding(
        evidence=(
            Evidence(claim="its parent noticed that it is gone", seen=text.strip(), where="text"),
            *others,
            *waited,
        ),
        summary=f"The process is gone{doing}, and nothing says how it ended: \u201c{shown}\u201d.",
        confidence="possible",
        culprit=culprit,
        title="A process is gone, and nothing says how it ended",
        fixes=(_alone(crash, by, test), _LOG),
        possible=_possible(by),
    )


_NOTEBOOKS = frozenset({"Jupyter", "VS Code", "nbconvert", "Colab", "Spyder", "Databricks", "Zeppelin"})
_LOG = Fix(text="Read the log of the program that started it: it may say how its child ended.")
_RUN = "necropsy run python SCRIPT.py"


def _alone(crash: Crash, by: str, test: str | None) -> Fix:
    """How to do the same work in a process that necropsy can read."""
    if test is not None:
        return Fix(
            text="Run this test alone and without worker processes, under necropsy.",
            command=f"necropsy run python -m pytest -p no:xdist {quoting.word(test, 'TEST', crash)}",
        )
    if by == "pytest-xdist":
        return Fix(
            text="Run the tests without worker processes, under necropsy.",
            command="necropsy run python -m pytest -p no:xdist",
        )
    if by in _NOTEBOOKS:
        return Fix(
            text="Convert the notebook to a script and run that under necropsy, which observes the crash itself.",
            command="jupyter nbconvert --to script NOTEBOOK.ipynb; necropsy run python NOTEBOOK.py",
        )
    if by == "PyTorch's DataLoader":
        return Fix(text="Load the data in the program itself (num_workers=0), and run it under necropsy.", command=_RUN)
    if by == "Ray":
        return Fix(
            text="Read the log of the worker that died, and run the program under necropsy: it follows all of its children.",
            command="grep -l 'SIG\\|Fatal' /tmp/ray/session_latest/logs/*; necropsy run python SCRIPT.py",
        )
    return Fix(
        text="Run it under necropsy, which follows all of its children and observes the one that crashes.", command=_RUN
    )


_POSSIBLE = (
    Possibility(
        cause="A crash in native code: a bad pointer, a full stack, an abort()",
        decide="Run as a script, it ends by a signal (139, 134, -11, -6) or with one of Windows' statuses",
        command="python -X faulthandler -u SCRIPT.py; echo $?",
    ),
    Possibility(
        cause="The kernel, or a memory limit of the container or the batch system",
        rule="out-of-memory-killed",
        decide="The kernel's log, or the counter oom_kill of its control group",
        command="dmesg -T | grep -i 'killed process'; grep oom_kill /sys/fs/cgroup/memory.events",
    ),
    Possibility(
        cause="The program ended itself: os._exit, sys.exit in a worker, a restart by hand",
        decide="Run as a script, it ends with a small exit code",
    ),
)

_RECURSION = Possibility(
    cause="A recursion that filled the stack",
    rule="stack-overflow-recursion",
    decide="Run as a script, it ends with 139 or 0xC00000FD, or Python says RecursionError there",
    command="python -X faulthandler -u SCRIPT.py; echo $?",
)

_OF_NOTEBOOKS = (
    Possibility(
        cause="Native libraries that do not fit together: two OpenMP runtimes, two copies of one library",
        rule="conflicting-libraries",
        decide="It crashes in an import, or at the first use of the second of two packages, but not in a fresh environment",
        command='python -X faulthandler -c "import PACKAGE"',
    ),
    Possibility(
        cause="CUDA or cuDNN: a part that is missing, or versions that do not fit together",
        rule="cudnn-version-mismatch",
        decide="It works with the GPU hidden; on Windows, zlibwapi.dll is often what is missing",
        command="CUDA_VISIBLE_DEVICES=-1 python SCRIPT.py",
    ),
)
"""Additional causes for kernels, which import everything into one process, mostly for a GPU."""


def _possible(by: str) -> tuple[Possibility, ...]:
    if by not in _NOTEBOOKS:
        return _POSSIBLE
    return (*_POSSIBLE[:-1], *_OF_NOTEBOOKS, _POSSIBLE[-1], _RECURSION)


RULE = Rule(
    _match,
    severity="note",
    tried=Tried(
        advice="Run it under necropsy.",
        result="cause proved",
        how=(
            "A shell script passed on only the number 55; under necropsy the verdict was the null pointer of "
            "the program that the script had started."
        ),
        test="tests/rules/test_advice.py::test_only_an_exit_status",
    ),
    hit="""
        exit 139
    """,
    miss="""
        exit 0
    """,
)
