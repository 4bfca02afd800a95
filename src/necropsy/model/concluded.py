"""What is concluded from what was seen."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Confidence, Evidence, Gap, Noun, Severity
from necropsy.model.observed import Crash, LastWords
from necropsy.model.stacks import Owner

Status = Literal["observed", "confirmed", "refuted", "inconclusive"]


class Fix(Noun, frozen=True, kw_only=True):
    """What to do. ``verified``: true after a run without the crash, false after one with it, None: not tried."""

    text: str
    command: str | None = None
    """Lines for a shell, to be copied."""
    verified: bool | None = None


class PythonPlace(Noun, frozen=True, kw_only=True):
    """A line of Python code."""

    function: str | None = None
    file: str | None = None
    line: int | None = None


class Culprit(Noun, frozen=True, kw_only=True):
    """Who did it; each part may be unknown."""

    function: str | None = None
    """The native function, demangled."""
    module: str | None = None
    """The library or program that it is in, without its folder."""
    source: str | None = None
    """Its source file, with ``line``, where there is debug information."""
    line: int | None = None
    python: PythonPlace | None = None
    """The line of Python that led there."""
    op: str | None = None
    """The framework's operation that ran: ``MatMul``."""
    kernel: str | None = None
    """The C++ class that implements it."""
    owner: Owner | None = None
    """Whose code that function is; of the line of Python where no native code is named."""
    package: str | None = None
    """The package that it belongs to, for the owners ``package`` and ``framework``."""
    version: str | None = None
    """The installed version of that package."""
    nearest: bool = False
    """It is only the nearest frame that is not the interpreter's: functions of Python's own stand between it and the
    death, and it need not have done it."""


class Location(Noun, frozen=True, kw_only=True):
    """A place in a source file; ``role`` says what is there (``call``, ``definition``, ``frame``)."""

    path: str
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    role: str | None = None


Outcome = Literal["survives", "same", "another", "hangs", "cannot-run", "mixed"]
"""What runs under a change did: survived; died with the same signature; died otherwise; reached the time limit; could
not be started; or not all the same."""


class Change(Noun, frozen=True, kw_only=True):
    """What one experiment changes of a run; everything else stays as it was.

    ``environment``: variables to set, or to remove (None). ``stack_limit``: soft RLIMIT_STACK in bytes, -1 for
    unlimited. ``thread_stack``: the least stack of every thread that names a size of its own, in bytes.
    ``address_space``: RLIMIT_AS in bytes. ``preload``: libraries before all others, ``{GUARD}`` for that of
    `necropsy run --guard`. ``wrapper``: words before the
    command. ``arguments``: what replaces each ``{NAME}`` in the command. ``library``: the path of a library that is
    loaded, and the path of the one to load instead. ``checker``: who watches the run and writes what it sees; its files
    begin with the path that replaces ``{LOG}`` in ``wrapper``, ``environment`` and ``at_start``. ``seconds``: this
    run's own time limit. ``data_limit``: RLIMIT_DATA in bytes, -1 for unlimited. ``at_start``: Python statements that
    each interpreter of it executes before anything else. ``own_memory``: the least address space and data segment
    that the program allows itself, in bytes, -1 for unlimited.
    """

    environment: dict[str, str | None] = {}
    stack_limit: int | None = None
    thread_stack: int | None = None
    address_space: int | None = None
    preload: tuple[str, ...] = ()
    wrapper: tuple[str, ...] = ()
    arguments: dict[str, str] = {}
    library: tuple[str, str] | None = None
    checker: Literal["valgrind", "thread-sanitizer", "imports", "memory", "mappings"] | None = None
    seconds: float | None = None
    data_limit: int | None = None
    at_start: tuple[str, ...] = ()
    own_memory: int | None = None


class Proposal(Noun, frozen=True, kw_only=True):
    """An experiment that a rule proposes: what to change, what the rule predicts, and what either outcome proves.

    ``proves``: where the prediction comes true, the diagnosis is confirmed; ``refutes``: where it does not, it is
    refuted. One that does neither is only told. ``finds``: verdicts on the changed run's death that prove it, where the
    change makes the program check itself. ``fix``: the advice that is verified where the program survives.
    ``otherwise``: the rule whose diagnosis is proved where it survives against the prediction.
    """

    name: str
    change: Change
    text: str
    predicts: tuple[Outcome, ...]
    proves: bool = True
    refutes: bool = True
    finds: tuple[str, ...] = ()
    fix: Fix | None = None
    otherwise: str | None = None


class Experiment(Noun, frozen=True, kw_only=True):
    """One controlled re-run: what it changed, what it predicted, and how many of ``runs`` crashed."""

    name: str
    """The same for the same change, by any rule."""
    change: str
    """What was changed, in words."""
    predicts: str
    """What the rule predicted, in words."""
    runs: int
    crashed: int
    outcome: str
    """What happened, in words, or why it could not be tried."""
    rule: str | None = None
    """The rule whose hypothesis it tests."""
    means: str | None = None
    """What that says of the hypothesis, in words."""
    conclusive: bool | None = None
    """There were enough runs for the claim, at 95 %."""


class Possibility(Noun, frozen=True, kw_only=True):
    """A cause that is only possible, and what would decide: ``decide`` says what to look at, ``command`` shows it.

    ``share`` says how often it was the confirmed cause, in words (``7 of 13 public reports``), where that was counted.
    """

    cause: str
    rule: str | None = None
    share: str | None = None
    decide: str | None = None
    command: str | None = None


class Contradiction(Noun, frozen=True, kw_only=True):
    """Two inputs that cannot both be true of one death; ``right`` is the one to believe, where that can be known."""

    said: str
    """One of them, as it was given."""
    against: str
    right: str | None = None
    why: str
    """Why they cannot both be true, or why ``right`` is."""


class LockWait(Noun, frozen=True, kw_only=True):
    """One step of a deadlock: a thread that waits for a lock; the next step's thread holds it."""

    thread: int
    """Its id."""
    name: str | None = None
    """In words: ``the main thread``."""
    lock: str
    """``the GIL``, ``the mutex at 0x7f..``, ``the RLock at 0x7f..``; or ``the end of thread 4712``."""
    holder: int
    """The thread that holds it, or whose end is waited for."""
    joins: bool = False
    """It waits for the end of that thread (``Thread.join``), and not for a lock."""
    where: Culprit | None = None
    """The function and the lines at which it waits."""


class Diagnosis(Noun, frozen=True, kw_only=True):
    """A rule's verdict on a subject. It cannot be made without evidence."""

    rule: str
    """The rule's name, which stays: `necropsy explain RULE` shows its page."""
    title: str
    """What the rule says of any such death."""
    summary: str
    """What it says of this one: the first sentence of a report."""
    severity: Severity
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    status: Status = "observed"
    """``observed``: no experiment was made; the others are what experiments said."""
    culprit: Culprit | None = None
    locations: tuple[Location, ...] = ()
    """Places in source files that a message names."""
    fixes: tuple[Fix, ...] = ()
    """What to do, the first thing first."""
    experiments: tuple[Experiment, ...] = ()
    possible: tuple[Possibility, ...] = ()
    """Where the verdict leaves several causes open: the most frequent first."""
    last_words: LastWords | None = None
    """What the program wrote last, quoted where no rule knows these words."""
    deadlock: tuple[LockWait, ...] = ()
    """Threads that wait for each other: each for a lock that the next one holds, the last for one of the first's."""
    references: tuple[str, ...] = ()
    """Where the rule's facts come from."""

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"a diagnosis needs evidence, {self.rule} has none")


class NotTried(Noun, frozen=True, kw_only=True):
    """A rule that could not be asked, and why: neither yes nor no."""

    rule: str
    reason: str
    checks: str | None = None
    """What it looks at, in a few words; only of rules on an environment."""


class Report(Noun, frozen=True, kw_only=True):
    """The diagnoses of one crash: the verdict, its weaker rivals, and what was not tried."""

    crash: Crash
    pid: int | None = None
    """Of the process that died; None where a text does not tell."""
    consequence_of: int | None = None
    """The process whose death this end follows from: that one's report stands before this one."""
    took_s: float | None = None
    """From the fatal signal to this report, in seconds."""
    signature: str | None = None
    """The same for the same crash, on any machine: to group by."""
    verdict: Diagnosis | None = None
    """None where no rule recognised the cause."""
    alternatives: tuple[Diagnosis, ...] = ()
    """What else it could be: weaker rivals of the verdict."""
    environment_findings: tuple[Diagnosis, ...] = ()
    """What rules on environments found in the libraries, variables and limits of the dead process, and that could
    explain its death: errors first."""
    contradictions: tuple[Contradiction, ...] = ()
    """`necropsy explain`: inputs that do not fit together."""
    not_tried: tuple[NotTried, ...] = ()
    """Rules that could not be asked, because what they need was not observed."""
    gaps: tuple[Gap, ...] = ()
    """What was not observed of this death, and why."""
