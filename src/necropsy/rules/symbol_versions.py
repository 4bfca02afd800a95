"""Versions of symbols that a system's library lacks, as findings of the rules on libraries that are too old."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from necropsy.model import Environment, Fix
from necropsy.rule import Finding
from necropsy.rules import compatibility, libraries, packages


def too_old(
    environment: Environment, kind: Literal["glibc", "libstdcxx"], fix: Callable[[Environment, libraries.Unmet], Fix]
) -> Iterator[Finding]:
    """One finding for each file of ``kind`` (see ``libraries.Unmet``) that lacks versions that a library needs."""
    for unmet in libraries.unmet_versions(environment):
        if unmet.kind != kind:
            continue
        since = compatibility.brought_by(unmet.highest)
        needing = libraries.owner(environment, unmet.needing[0])
        yield Finding(
            evidence=libraries.versions_seen(unmet),
            summary=f"{needing} needs {unmet.highest}{f' ({since})' if since else ''}, and `{unmet.path}` is older.",
            confidence="certain",
            about=frozenset({f"file {unmet.path}"}),
            fixes=(fix(environment, unmet),),
        )


def older_release(environment: Environment, unmet: libraries.Unmet, otherwise: str) -> Fix:
    """An older release of the package that needs too much; the advice ``otherwise`` where it belongs to none."""
    name = unmet.needing[0].distribution
    one = environment.distribution(name) if name is not None else None
    if one is None:
        return Fix(text=otherwise)
    return packages.install(
        environment,
        f"{one.name}<{one.version}",
        "Use a newer system or container image, or an older release that was built for this one.",
        like=one,
    )
