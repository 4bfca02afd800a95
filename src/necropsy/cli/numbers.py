"""Numbers, sizes and lengths of time on the command line."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}


class Seconds(click.FloatRange):
    """A length of time in seconds, a number or with a unit: ``90``, ``100ms``, ``90s``, ``1.5m``, ``2h``, ``1d``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Give the seconds, within the range."""
        if isinstance(value, str):
            match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", value, re.IGNORECASE)
            unit = _UNITS.get(match[2].lower()) if match else None
            if match is None or unit is None or match[1].count(".") > 1 or match[1] == ".":
                self.fail(f"{value!r} is not a length of time: give seconds, or 100ms, 90s, 10m, 2h, 1d", param, ctx)
            value = float(match[1]) * unit
        return super().convert(value, param, ctx)


class Bytes(click.IntRange):
    """A size in bytes, written as a number or with a unit: ``8388608``, ``512K``, ``8M``, ``1G``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Give the bytes, within the range."""
        if isinstance(value, str):
            match = re.fullmatch(r"\s*(\d{1,12})\s*([kmg]?)i?b?\s*", value, re.IGNORECASE)
            if match is None:
                self.fail(f"{value!r} is not a size: give bytes, or 512K, 8M, 1G", param, ctx)
            value = int(match[1]) << _SHIFTS[match[2].lower()]
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A range of whole numbers that its complaints call so."""

    name = "whole number"
