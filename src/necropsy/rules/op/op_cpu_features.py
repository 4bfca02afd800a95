"""A custom op needs instructions that this processor lacks.

What happened
-------------
The library was compiled for a newer or another processor than this one, often with ``-march=native`` on the build machine, and has instructions that this
processor refuses. The process is killed by SIGILL when it reaches one.

How to be sure
--------------
The finding names the instruction and its function; ``grep -m1 flags /proc/cpuinfo`` lists what this processor has.
Libraries that ask the processor what it can do are not judged: such code is meant for other processors there.

How to fix it now
-----------------
Compile without ``-march=native``: ``-march=x86-64-v2`` runs on every processor since 2009, ``-march=x86-64-v3`` on those with AVX2.

How to prevent it
-----------------
Never compile with ``-march=native`` what runs elsewhere; compile several versions of a hot function with ``__attribute__((target_clones(...)))``.

What it is often mistaken for
-----------------------------
A crash of the op's own code: SIGILL also comes from ``ud2``, which compilers put where code must never get to.

Sources
-------
- https://gcc.gnu.org/onlinedocs/gcc/x86-Options.html
- https://man7.org/linux/man-pages/man7/signal.7.html
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import X86_64, Finding, Occurs, Rule, several
from necropsy.rules import ops


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    for one in environment.ops or ():
        needs = one.unsupported or ()
        if not needs:
            continue
        names = ", ".join(each.feature for each in needs)
        yield Finding(
            evidence=tuple(
                Evidence(
                    claim=f"it needs {each.feature}, and the processor does not have it ({each.flag})",
                    seen=each.text,
                    where=f"{each.where} in {one.path}",
                )
                for each in needs[:5]
            ),
            summary=f"`{one.path}` needs {names}, which this processor does not have: `{needs[0].text}` in {ops.short(needs[0].where)}.",
            confidence="likely",
            about=frozenset({f"instructions of {one.path}"}),
            fixes=(Fix(text="Compile it for older processors too: with -march=x86-64-v2, in place of -march=native."),),
        )


RULE = Rule(
    _match,
    needs=("ops",),
    occurs=Occurs(linux=X86_64, windows=X86_64, macos=X86_64),
    checks="instructions of custom ops",
    hit="""
        op /home/u/op.so
        op-needs-cpu AVX-512F avx512f "vaddps zmm0, zmm1, zmm2" Compute
    """,
    miss="""
        op /home/u/op.so
    """,
)
