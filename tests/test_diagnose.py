"""Ranking, the four outcomes, and what a bad rule costs."""

from __future__ import annotations

from collections.abc import Callable

from necropsy.diagnose import diagnose
from necropsy.model import Address, Confidence, Crash, Environment, Evidence, Exit, Fault, Frame, Gap, Thread
from necropsy.rule import NOTHING, X86_64, Finding, Occurs, Rule, absent, all_of, any_of

SEEN = (Evidence(claim="seen", seen="x"),)


ANYWHERE = Occurs()


def rule(
    name: str,
    confidence: Confidence | None = "certain",
    *,
    match: Callable[[Crash], Finding | None] | None = None,
    needs: tuple[str, ...] = (),
    beats: tuple[str, ...] = (),
    occurs: Occurs = ANYWHERE,
) -> Rule[Crash]:
    def answer(_: Crash) -> Finding | None:
        return Finding(evidence=SEEN, summary=name, confidence=confidence) if confidence else None

    return Rule(match or answer, name=name, title=name, needs=needs, beats=beats, occurs=occurs)


def test_the_surest_comes_first() -> None:
    report = diagnose(Crash(), [rule("b", "possible"), rule("a", "likely")])
    assert report.verdict
    assert report.verdict.rule == "a"
    assert [one.rule for one in report.alternatives] == ["b"]


def test_the_special_rule_names_the_general_one() -> None:
    report = diagnose(Crash(), [rule("general"), rule("special", "likely", beats=("general",))])
    assert report.verdict
    assert report.verdict.rule == "special"
    assert report.alternatives == ()


def test_two_decisive_rivals_are_not_certain() -> None:
    report = diagnose(Crash(), [rule("a"), rule("b")])
    assert report.verdict
    assert {one.confidence for one in (report.verdict, *report.alternatives)} == {"likely"}


def test_what_was_not_captured_is_not_tried() -> None:
    crash = Crash(gaps=(Gap(part="log_tail", why="stderr is a terminal"),))
    report = diagnose(crash, [rule("a", needs=("log_tail",)), rule("b", needs=("stack",))])
    assert report.verdict is None
    assert [(one.rule, one.reason) for one in report.not_tried] == [
        ("a", "log_tail not captured: stderr is a terminal"),
        ("b", "stack not captured"),
    ]


def test_what_cannot_occur_there_is_not_applicable_and_not_unobserved() -> None:
    of_x86 = Occurs(linux=X86_64, macos=X86_64)
    rules = [rule("a", needs=("stack",), occurs=of_x86), rule("b", "possible", occurs=of_x86)]
    on_arm = diagnose(Crash(registers={"x0": Address(0), "pc": Address(0x1000)}), rules)
    assert (on_arm.verdict, on_arm.not_tried) == (None, ())
    on_x86 = diagnose(Crash(registers={"rip": Address(0x1000)}), rules)
    assert on_x86.verdict is not None
    assert [one.rule for one in on_x86.not_tried] == ["a"]
    windows_of_arm = Crash(registers={"x0": Address(0)}, environment=Environment(platform="win32"))
    assert [one.rule for one in diagnose(windows_of_arm, rules).not_tried] == ["a"]


def test_a_part_that_is_empty_was_looked_at() -> None:
    crash = Crash(messages=(), threads=(Thread(tid=1, crashed=True, frames=()),))
    report = diagnose(crash, [rule("a", None, needs=("messages", "frames"))])
    assert report.not_tried == ()


def test_a_rule_that_raises_costs_only_itself() -> None:
    def fall(_: Crash) -> Finding | None:
        raise ZeroDivisionError("x")

    report = diagnose(Crash(), [rule("bad", match=fall), rule("good", "likely")])
    assert report.verdict
    assert report.verdict.rule == "good"
    assert report.gaps == (Gap(part="rule bad", why="ZeroDivisionError: x"),)


def test_all_any_absent() -> None:
    assert all_of(SEEN, NOTHING) == NOTHING
    assert all_of(SEEN, SEEN) == SEEN + SEEN
    assert any_of(NOTHING, SEEN) == SEEN
    assert absent(SEEN, observed=True, claim="c") == NOTHING
    assert absent(NOTHING, observed=False, claim="c") == NOTHING
    assert absent(NOTHING, observed=True, claim="c")[0].seen == "not there"


def dead(*names: str) -> Crash:
    frames = tuple(Frame(index=index, kind="native", function=name) for index, name in enumerate(names))
    return Crash(fault=Fault(signal="SIGSEGV"), threads=(Thread(tid=1, crashed=True, frames=frames),))


def test_the_same_crash_has_the_same_signature() -> None:
    rules = [rule("a")]
    assert diagnose(dead("f", "g"), rules).signature == diagnose(dead("f", "g"), rules).signature
    assert diagnose(dead("f", "g"), rules).signature != diagnose(dead("f", "h"), rules).signature
    assert diagnose(dead("f", "g"), rules).signature != diagnose(dead("f", "g"), [rule("b")]).signature


def test_a_signature_without_anything() -> None:
    assert diagnose(Crash(exit=Exit(kind="exited", code=3)), []).signature
    assert diagnose(Crash(), []).signature
