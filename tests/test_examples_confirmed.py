"""The demo with ``--confirm``: what the experiments say of the examples' deaths, held against the catalogue."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

import needs
from demo import table
from demo.examples import FOLDER, Example, Proof, catalogue
from demo.proof import Campaigned, ExampleProver, faults, row
from demo.workshop import Workshop
from necropsy.confirm.subreaper import descendants
from necropsy.errors import InputError
from necropsy.model import Experiment

KNOWN = catalogue(FOLDER)
THAT_DIE = {example.name: example for example in KNOWN.example if example.rule}
ALL = bool(os.environ.get("NECROPSY_ALL_EXAMPLES"))
ALWAYS = frozenset({"session"})
"""The examples that are put to the test each time; all of them every night, by `make demo-confirm`.

A campaign with a program of TensorFlow, whose fix is verified. A recursion on the main thread is put to the test below, by
the same prover, and in confirm/test_stacks.py; one on a thread with a size of its own is in confirm/test_confirm.py. There a
run takes a tenth of a second, and with TensorFlow five. Damage to the stack and to the heap, with an op that is built again
from its source, is in confirm/test_rebuild.py: there a build takes a second, and with TensorFlow's headers ten.
"""


def _case(name: str) -> object:
    """The example, with what its test needs."""
    why = "NECROPSY_ALL_EXAMPLES=1 puts every example to the test (some ten minutes)"
    chosen = pytest.mark.skipif(not (ALL or name in ALWAYS), reason=why)
    return pytest.param(name, marks=[chosen, *[needs.command("g++")] * bool(THAT_DIE[name].build)])


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
needs_a_campaign = pytest.mark.slow  # a dozen runs


@pytest.mark.tensorflow
@on_linux
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize("name", [_case(name) for name in THAT_DIE])
def test_the_cause_is_confirmed_and_a_fix_is_verified(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = THAT_DIE[name]
    monkeypatch.setattr("demo.proof.TIME_LIMIT_S", 3600)  # a machine may be busy
    assert example.proof is not None
    prover = ExampleProver(Workshop(FOLDER, sys.executable, runs=tmp_path), KNOWN.build, sources=ALL)
    found = prover.campaign(example, example.proof)
    told = [(one.name, one.crashed, one.runs, one.outcome, one.means) for one in found.experiments]
    assert not list(faults(example.proof, found, example.rule)), (told, found.stderr[-2000:])


@pytest.mark.parametrize("example", KNOWN.example, ids=lambda example: example.name)
def test_the_catalogue_says_of_each_example_that_dies_what_must_be_proved(example: Example) -> None:
    assert (example.proof is not None) == bool(example.rule)
    if example.proof is not None:
        assert (example.proof.fix is None) != (example.proof.no_fix is None), "a fix, or why there is none"
        assert example.proof.corrected is None or (FOLDER / "ops/corrected" / example.proof.corrected).is_file()


def test_every_corrected_source_is_used() -> None:
    used = {example.proof.corrected for example in THAT_DIE.values() if example.proof is not None}
    assert used - {None} == {path.name for path in (FOLDER / "ops/corrected").iterdir()}


# ---------------------------------------------------------------- the table, on a program of our own that really dies

RECURSION = """\
import sys
sys.setrecursionlimit(1_000_000)
data = []
for _ in range(30_000):
    data = [data]
repr(data)
"""
DEEP = Example(
    name="deep-list",
    about="repr of a list of 30,000 levels",
    script="deep_list.py",
    outcome=("SIGSEGV",),
    stack=1 << 20,
    rule=("stack-overflow-recursion",),
    proof=Proof(fix="ulimit -s"),
)
SLEEPS = Example(name="sleeps", about="it sleeps", script="sleeps.py", outcome=("SIGSEGV",), rule=("hang",))


class ProverOfEachOnce(ExampleProver):
    """Runs one campaign of each example: what comes of it does not depend on what the catalogue expects."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__(workshop, {})
        self._found: dict[str, Campaigned] = {}

    def campaign(self, example: Example, proof: Proof) -> Campaigned:
        if example.name not in self._found:
            self._found[example.name] = super().campaign(example, proof)
        return self._found[example.name]


@pytest.fixture(scope="module")
def prover(tmp_path_factory: pytest.TempPathFactory) -> ExampleProver:
    place = tmp_path_factory.mktemp("examples")
    (place / "scripts").mkdir()
    (place / "scripts" / DEEP.script).write_text(RECURSION)
    (place / "scripts" / SLEEPS.script).write_text("import time\ntime.sleep(300)\nopen('woke', 'w')\n")
    return ProverOfEachOnce(Workshop(place, sys.executable, runs=place / "runs"))


@pytest.fixture(scope="module")
def campaigned(prover: ExampleProver) -> Campaigned:
    return prover.campaign(DEEP, Proof())


def said_of(prover: ExampleProver, examples: list[Example], *, full: bool = False) -> tuple[table.TableLine, str]:
    said: list[str] = []
    told = table.proved(prover, examples, {}, said.extend, lambda _text: None, full=full)
    return told, "\n".join(said)


@on_linux
@needs_a_campaign
def test_the_table_tells_what_was_proved(prover: ExampleProver) -> None:
    told, text = said_of(prover, [DEEP], full=True)
    assert told.is_right
    assert "stack-overflow-recursion: confirmed" in text
    assert "lives: ulimit -s" in text
    assert "    Evidence" in text, "the full report"
    assert "1 of 1 as they should be." in text
    whole = json.loads(msgspec.json.encode(told))
    (example,) = whole["examples"]
    assert example["fixes"][0]["verified"] is True
    assert example["runs"] == 1 + sum(one["runs"] for one in example["experiments"])
    assert example["cpu_s"] > 0
    assert not example["faults"]


@on_linux
@needs_a_campaign
def test_a_wrong_expectation_makes_it_fail(prover: ExampleProver) -> None:
    wrong = msgspec.structs.replace(DEEP, proof=Proof(fix="use a loop"))
    told, text = said_of(prover, [wrong])
    assert not told.is_right
    assert "NOT RIGHT: no fix with the words 'use a loop' was verified" in text
    assert "0 of 1 as they should be." in text


@on_linux
@needs_a_campaign
@pytest.mark.parametrize(
    ("proof", "rules", "said"),
    [
        (Proof(fix="ulimit -s"), DEEP.rule, []),
        (Proof(fix="ulimit -s"), ("stack-smash",), ["the verdict is stack-overflow-recursion, not stack-smash"]),
        (Proof(no_fix="none"), DEEP.rule, ["the catalogue says that no fix can be tried"]),
        (Proof(fix="ulimit -s", undecided=("data-race",)), DEEP.rule, ["data-race no longer competes with it"]),
        (Proof(fix="set -e"), ("hang",), ["the verdict is", "no fix with the words 'set -e' was verified"]),
    ],
)
def test_what_is_not_as_expected_is_named(
    campaigned: Campaigned, proof: Proof, rules: tuple[str, ...], said: list[str]
) -> None:
    told = list(faults(proof, campaigned, rules))
    assert len(told) == len(said), told
    assert all(words in one for words, one in zip(said, told, strict=True)), told


@on_linux
@needs_a_campaign
def test_what_was_not_proved_is_named(campaigned: Campaigned) -> None:
    def replaced(**changes: object) -> list[str]:
        assert campaigned.report is not None
        report = msgspec.structs.replace(campaigned.report, **changes)
        return list(faults(Proof(fix="ulimit -s"), Campaigned(report, 1, 1), DEEP.rule))

    verdict = campaigned.verdict
    assert verdict is not None
    assert not replaced()
    assert replaced(verdict=msgspec.structs.replace(verdict, status="inconclusive")) == [
        "stack-overflow-recursion is inconclusive, not confirmed"
    ]
    assert "nothing was put to the test" in replaced(verdict=None)[0]
    tried = Experiment(name="x", change="x", predicts="x", runs=1, crashed=1, outcome="dies", rule="stack-smash")
    for status, said in (("confirmed", "also confirmed"), ("inconclusive", "a rival that can be tested")):
        rival = msgspec.structs.replace(verdict, rule="stack-smash", status=status, experiments=(tried,))
        (fault,) = replaced(alternatives=(rival,))
        assert said in fault
    untested = msgspec.structs.replace(verdict, rule="stack-smash", status="observed", experiments=())
    assert not replaced(alternatives=(untested,))


@on_linux
def test_a_demo_that_is_left_early_ends_its_campaigns(prover: ExampleProver) -> None:
    def stop(_text: str) -> None:
        raise KeyboardInterrupt

    before = set(descendants(os.getpid()))
    with pytest.raises(KeyboardInterrupt):
        list(prover.all([SLEEPS, SLEEPS], stop))
    assert not list(prover.workshop.runs.rglob("woke")), "it did not wait for what sleeps for five minutes"
    assert set(descendants(os.getpid())) <= before


def test_an_example_that_lives_has_no_cause_to_prove() -> None:
    lives = [example for example in KNOWN.example if not example.rule]
    with pytest.raises(InputError, match="does not die"):
        table.that_die(lives, named=True)
    assert {example.name for example in table.that_die(KNOWN.example, named=False)} == set(THAT_DIE)


def test_a_row_holds_no_verdict_where_there_is_none() -> None:
    told = row(DEEP, Campaigned(None, 1.0, 1.0, 1, "necropsy: it broke"))
    assert told.rule is None
    assert told.faults == ("nothing was put to the test: necropsy: it broke",)
    assert isinstance(told.experiments, tuple)
    assert "NOT RIGHT" in "\n".join(table.lines(told, 40))
