"""Outputs that are written in part: they are zero from the beginning."""

from __future__ import annotations

import re

from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx_repairs.edits import Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect


def unset(site: Site, defect: CodeDefect) -> Repair:
    """``auto y = output->flat<float>();`` -> and ``y.setZero();`` behind it."""
    if defect.case != "part":
        raise NoRepairError("what the output should be is not known")
    name = re.escape(defect.names["outputs"])
    for each in locals_of(site.function):
        value = site.text(each.value) if each.value is not None else ""
        if re.fullmatch(rf"(?s){name}\s*->\s*(?:flat|vec|matrix|tensor|scalar)\s*<(?!.*string).*>\s*\(\s*\)", value):
            return Repair(
                (site.after(each.statement, [f"{each.name}.setZero();"]),), f"sets `{each.name}` to zero first"
            )
    raise NoRepairError("no view of the output is seen")
