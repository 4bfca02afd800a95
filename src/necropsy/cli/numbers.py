"""Numbers on the command line."""

from __future__ import annotations

import click


class Seconds(click.FloatRange):
    """A range of numbers that its complaints call a number."""

    name = "number"


class Whole(click.IntRange):
    """A range of whole numbers that its complaints call so."""

    name = "whole number"
