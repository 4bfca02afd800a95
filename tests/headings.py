"""The sections of every rule's page, in their order."""

from __future__ import annotations

HEADINGS = (
    "What happened",
    "How to be sure",
    "How to fix it now",
    "How to prevent it",
    "What it is often mistaken for",
    "Sources",
)
