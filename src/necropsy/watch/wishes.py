"""What somebody who registers wants to be done with a report."""

from __future__ import annotations

from typing import NamedTuple


class Wishes(NamedTuple):
    """``show``: it is written to the stderr of the process that registered; ``keep``: in the folder of reports."""

    show: bool = True
    keep: bool = True
