"""``necropsy explain``: codes, names of verdicts, texts and logs to a page of text and to a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import BinaryIO

import msgspec

from necropsy import redact
from necropsy.capture.merge import told
from necropsy.explanation import code_page, rule_page
from necropsy.explanation.inputs import Inputs, Watch, read
from necropsy.model import Contradiction, Crash, Document, Report
from necropsy.reports import wording
from necropsy.reports.terminal import without_commands, wrap
from necropsy.rule import Rule

ENDED_WELL = frozenset({"python-exception", "exit-status-only"})
"""Verdicts that a program with status 0 cannot have died of: it caught and reported the error."""


_OWN_REPORT = re.compile(
    r"^.{0,80}?\b(?:Verdict  (?P<verdict>[a-z0-9-]{3,60}, (?:certain|likely|possible)):"
    r"|Full report: .{1,200} --full \((?P<rule>[a-z0-9-]{3,60})[,)])",
    re.MULTILINE,
)


Rules = Callable[[], Sequence[Rule[Crash]]]
"""Loads the rules only for a document, because a code's page needs none."""


class Explanation:
    """What was given, and what it says of one death."""

    def __init__(self, inputs: Inputs, rules: Rules) -> None:
        self.inputs = inputs
        self._rules = rules
        self._told = told(inputs.codes, inputs.digests) if inputs.codes or inputs.digests else None

    @cached_property
    def document(self) -> Document | None:
        """The document, without a report where nothing was found; None where only names of verdicts were given."""
        from necropsy.document import of_crash

        if self._told is None:
            return None
        document = of_crash(self._told.crash, self.inputs.subject, self._rules())
        report = msgspec.structs.replace(document.reports[0], contradictions=self._contradictions)
        found = bool(self.inputs.codes) or _is_found(report)
        return msgspec.structs.replace(document, reports=(report,) if found else ())

    def text(self, *, color: bool = False, width: int = 80, full: bool = False) -> str:
        """Terminal output: the report if a text was given, and pages of names and, without a text, of codes."""
        parts = []
        if self._has_text and self.document is not None:
            from necropsy.reports import rendered
            from necropsy.reports.brief import AGAIN

            said = rendered(self.document, "text", color=color, width=width, full=full, again=AGAIN)
            found = said.lstrip("\n") if self.document.reports else ""
            parts.append(found or nothing_found(self.inputs, width=width))
            if found and self._told is not None and self._told.one_of is not None:
                parts.append("\n".join(wrap(f"Note: {self._told.one_of}.", width, rest="  ")) + "\n")
        return without_commands("\n".join([*parts, *self._pages(width)]))

    @property
    def _contradictions(self) -> tuple[Contradiction, ...]:
        return tuple(map(redact.noun, self._told.contradictions)) if self._told is not None else ()

    @property
    def _has_text(self) -> bool:
        return bool(self.inputs.digests)

    def _pages(self, width: int) -> list[str]:
        said = self._contradictions if not self._has_text else ()
        found = ["\n".join(wrap(f"Note: {wording.contradiction(one)}", width, rest="  ")) + "\n" for one in said]
        if not self._has_text:
            found += ["\n".join(code_page.page(code, width)) + "\n" for code in self.inputs.codes]
        found += ["\n".join(rule_page.of_named(named, width)) + "\n" for named in self.inputs.named]
        pages_ = (rule_page.of_rule(name) or "" for name in self.inputs.rules)
        return [*found, *("\n".join(rule_page.reflow(page, width)) + "\n" for page in pages_)]


def explain(
    words: Sequence[str], rules: Rules, *, stdin: BinaryIO | None = None, watch: Watch | None = None
) -> Explanation:
    """Read everything given as evidence of one death.

    Raises ``UnknownCodeError`` for a word that is not a code, name, file or text, ``NoInputError`` for an unreadable
    file, and ``InputError`` for a file that is not a text.
    """
    return Explanation(read(words, stdin, watch), rules)


def nothing_found(inputs: Inputs, *, width: int = 80) -> str:
    """What is said where no input speaks of a death."""
    count = sum(digest.lines for digest in inputs.digests)
    where = ", ".join(dict.fromkeys(inputs.sources))
    read_ = f"{count:,} line{'s' if count != 1 else ''} read, and none of them says how a process died."
    empty = not any(digest.bytes for digest in inputs.digests)
    said = f"Nothing found in {where}: {'it is empty.' if empty else read_}"
    if (own := _OWN_REPORT.search("\n".join(digest.tail for digest in inputs.digests))) is not None:
        said = (
            f"{where} holds a necropsy report with the verdict {own['verdict'] or own['rule']}; nothing else was found."
        )
        return "\n".join(wrap(said, width)) + "\n"
    more = (
        "If a process did crash, its last output is not in this log. Add the exit code, or the launcher's log: "
        "`necropsy explain LOG 139`. Better, run it again under `necropsy run`, which observes the crash itself."
    )
    unread = dict.fromkeys(gap.why for digest in inputs.digests for gap in digest.gaps)
    # "None says" is true only of what was read.
    left_out = [line for why in unread for line in wrap(f"Part of the input was not read: {why}.", width)]
    return "\n".join([*wrap(said, width), *left_out, *wrap(more, width)]) + "\n"


def _is_found(report: Report) -> bool:
    crash, verdict = report.crash, report.verdict
    if crash.fault is not None or crash.threads:
        return True
    ended_well = crash.exit is not None and crash.exit.kind == "exited" and crash.exit.code == 0
    if verdict is None:
        return crash.exit is not None and not ended_well
    return not (ended_well and verdict.rule in ENDED_WELL)
