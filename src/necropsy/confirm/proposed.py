"""A rule's proposal, run until it is decided whether what it predicts comes true, and what that says of the rule."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from necropsy.confirm.campaign import Lab
from necropsy.confirm.conclusions import ExperimentResult, proved_instead
from necropsy.confirm.tally import WORDS, Tally, outcome_of
from necropsy.model import Experiment, Fix, Outcome, Proposal


@dataclass(frozen=True)
class Planned:
    """A rule's proposal, as the study that it asks for."""

    rule: str
    proposal: Proposal
    shares: frozenset[str] = frozenset()
    title: str = ""

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return self.proposal.text

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Run under the change until it is decided whether the prediction came true."""
        proposal = self.proposal
        tally = lab.tally(proposal.name, proposal.change)
        experiment, held = concluded(self, tally, lab)
        fixes: tuple[Fix, ...] = ()
        if proposal.fix is not None and experiment.conclusive and (tally.outcome == "survives" or tally.crashed):
            # Another death in its place is no fix either, nor is one that comes less often.
            fixes = (msgspec.structs.replace(proposal.fix, verified=tally.outcome == "survives"),)
        counts = held is not None and (proposal.proves if held else proposal.refutes)
        last = lab.last if tally.crashed else None
        # The death that it dies anyway, now here, now there, is not the check's.
        is_new = last is not None and last.outcome == "another" and "another" not in lab.baseline.outcomes
        if last is not None and is_new and last.rule in proposal.finds:
            said = f"{last.rule}" + (f", {last.where}" if last.where else "")
            experiment = msgspec.structs.replace(experiment, means=f"the check found it: {said}", conclusive=True)
            return ExperimentResult((experiment,), {self.rule: True}, fixes)
        proofs = {self.rule: bool(held)} if counts else {}
        other = proposal.otherwise
        if other is None or held is not False or tally.outcome != "survives":
            return ExperimentResult((experiment,), proofs, fixes)
        found = proved_instead(other, self.title, f"with {proposal.text} it lives", experiment)
        return ExperimentResult((experiment,), {**proofs, other: True}, fixes, instead=found)


def concluded(planned: Planned, tally: Tally, lab: Lab) -> tuple[Experiment, bool | None]:
    """The experiment as it is reported, and whether its prediction came true (None: that is not known)."""
    proposal = planned.proposal
    # A run that was stopped at its time limit has neither died nor lived.
    undecided: set[Outcome] = {"cannot-run", "mixed", "hangs"}
    decided = bool(tally.outcomes) and tally.outcome not in undecided - set(proposal.predicts)
    if decided and tally.outcome == "survives":
        # That it stayed away proves something only where it was seen often enough before, and is missed long enough.
        decided = lab.is_known and len(tally.outcomes) >= lab.enough
    held = tally.outcome in proposal.predicts if decided else None
    if tally.outcomes and tally.outcome == "mixed" and "same" in tally.outcomes:
        # It still comes, if not every time: the change does not remove it.
        decided, held = True, "same" in proposal.predicts
    by = lab.last.rule if lab.last is not None else None
    return (
        Experiment(
            name=proposal.name,
            change=proposal.text,
            predicts=_predicted(proposal.predicts),
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=outcome_of(tally) + (f", by {by}" if by is not None and tally.outcome == "another" else ""),
            rule=planned.rule,
            means=_means(planned, tally, held),
            conclusive=decided,
        ),
        held,
    )


def _predicted(outcomes: tuple[Outcome, ...]) -> str:
    if set(outcomes) == {"same", "another"}:
        return "it still dies"
    return " or ".join(WORDS[one] for one in outcomes)


def _means(planned: Planned, tally: Tally, held: bool | None) -> str:
    if held is None:
        if tally.ended_early:
            return "nothing: the budget was spent"
        return "nothing: it was stopped at its time limit" if "hangs" in tally.outcomes else "nothing"
    if held is False and tally.outcome == "survives" and not planned.proposal.proves and not planned.proposal.refutes:
        return "what is changed here takes part in the death"
    if held:
        return f"as {planned.rule} predicts" + ("" if planned.proposal.proves else ", which alone does not prove it")
    if planned.proposal.refutes:
        return f"this speaks against {planned.rule}"
    return f"not as {planned.rule} predicts, which alone says little"
