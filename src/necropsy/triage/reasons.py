"""Why deaths are one bug, in sentences that a person can check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from necropsy.triage.messages import tells_a_bug
from necropsy.triage.nodes import Node

_MOST = 0.8
_NAMES = 4


def common_names(native: Sequence[Node]) -> tuple[str, ...]:
    """The functions that nearly all stacks have, innermost first."""
    depth: dict[str, int] = {}
    seen: Counter[str] = Counter()
    full: dict[str, str] = {}
    for node in native:
        names = {name: place for place, (name, _) in reversed(list(enumerate(node.chain)))}
        names |= {name: place for place, name in enumerate(sorted(node.period)) if name not in names}
        for name, place in names.items():
            seen[name] += 1
            depth[name] = depth.get(name, 0) + place
        for name, known in node.chain:
            if len(known) > len(full.get(name, "")):
                full[name] = known
    shared = [name for name, count in seen.items() if count >= _MOST * len(native)]
    shared.sort(key=lambda name: (depth[name] / seen[name], name))
    return tuple(full.get(name) or name for name in shared[:_NAMES])


def reasons(nodes: Sequence[Node], native: Sequence[Node]) -> tuple[str, ...]:
    """What the members of a group share."""
    said = []
    if any(node.period for node in native):
        repeated = {name for node in native for name in node.period}
        said.append(f"The stack overflowed in a recursion through {_listed(sorted(repeated))}.")
    elif native:
        said.append(_innermost(native))
        callers = {node.chain[1][0] for node in native if len(node.chain) > 1 and node.chain[1][1]}
        if len(callers) == 1 and all(len(node.chain) > 1 for node in native):
            said.append(f"The caller is {callers.pop()} in every stack.")
    texts = sorted({node.text for node in nodes if node.text is not None})
    said += [f"The message is the same: {text}." for text in texts]
    lines = sorted({line for node in nodes for line in node.python_lines})
    if len(lines) == 1:
        said.append(f"The Python line is the same: {lines[0]}.")
    logs = [node for node in nodes if node not in native]
    verdicts = {node.verdict for node in logs if node.verdict is not None}
    if not (native or lines or any(tells_a_bug(text) for text in texts)):
        said += [f"The verdict is the same: {verdict.rstrip('.')}." for verdict in sorted(verdicts)]
        said.append("Nothing else is known of them, so they may be several bugs.")
    if logs and native:
        said.append(
            "Reports without native frames were added because no other group matches their Python line, signal and "
            "message."
        )
    elif logs:
        said.append("No report has native frames: only the Python line, the signal and the message were compared.")
    return tuple(said)


def _innermost(native: Sequence[Node]) -> str:
    tops = Counter(node.chain[0][0] for node in native if node.chain and node.chain[0][1])
    if not tops:
        return "All died at the same offset of a library without symbols."
    top, count = min(tops.items(), key=lambda item: (-item[1], item[0]))
    if count == len(native):
        return f"The innermost function of the program is {top} in every stack."
    others = sorted(set(tops) - {top})
    rest = f"; in the others it is {_listed(others)}" if others else ""
    return f"The innermost function of the program is {top} in {count} of {len(native)} different stacks{rest}."


def evidence(first: Iterable[Node], second: Iterable[Node]) -> str:
    """What two groups have in common."""
    a, b = list(first), list(second)
    codes = {code for node in a for code in node.codes} & {code for node in b for code in node.codes}
    names = [name for name in common_names([*a, *b]) if name]
    said = []
    if names:
        said.append(f"both died in {_listed(names)}")
    if codes:
        build, offset = min(codes)
        said.append(f"at the same code, {offset} of build {build}")
    texts = {node.text for node in a} & {node.text for node in b} - {None}
    said += [f"both said {text}" for text in sorted(str(text) for text in texts)]
    return "; ".join(said) or "their stacks are similar"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:5])
    rest = f" and {len(names) - 5} more" if len(names) > len(shown) else ""
    if len(shown) < 2 or rest:
        return ", ".join(shown) + rest
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
