"""What the rules on the dynamic linker share: an import or a load that failed, with the linker's own words."""

from __future__ import annotations

from necropsy.model import Confidence, Crash
from necropsy.rules.python import ended_by_exception, last_traceback


def ended_by(crash: Crash, text: str) -> Confidence | None:
    """How sure it is that the linker's complaint ``text`` ended the program; None where it surely did not.

    Programs try to load optional libraries and live without them: only the exception that ended it counts, or, with no
    Python in sight, an exit code of 127 as the linker itself gives it.
    """
    if crash.fault is not None:
        return None
    traceback = last_traceback(crash)
    if traceback is not None:
        said = [traceback.fields.get("text", ""), traceback.fields.get("first_text", "")]
        if any(one and one in text for one in said) and ended_by_exception(crash):
            return "certain" if crash.exit is not None else "likely"
        return None
    if crash.exit is None:
        return "possible"
    if crash.exit.kind == "exited" and crash.exit.code == 127:
        return "certain"
    return "possible" if crash.exit.kind == "exited" and crash.exit.code else None
