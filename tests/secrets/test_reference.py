"""Every rule of two published collections of secrets has an example here, and each of them is masked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from necropsy import redact
from necropsy.data import table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REFERENCE = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))
EXAMPLES = [(source, row) for source, rows in REFERENCE.items() for row in rows]


def leaks(half: str, text: str) -> bool:
    """Some characters of the value's second half, which no rule lets be read, are left in the text."""
    return any(half[at : at + 6] in text for at in range(max(1, len(half) - 5)))


def surroundings(name: str | None, value: str) -> list[str]:
    """The value as it is found in logs: alone, in a sentence, quoted, escaped, coloured, in JSON and in an address."""
    if name is not None:
        return [
            f"{name}={value}",
            f"{name}: {value}",
            f'{{"{name}": "{value}", "n": 1}}',
            f'{{\\"{name}\\": \\"{value}\\", \\"n\\": 1}}',
            f"{name.lower()} = '{value}'",
            f"export {name}={value}; python train.py",
        ]
    return [
        value,
        f"loading {value}.",
        f'x="{value}",',
        f"['{value}', 1]",
        f"GET /?q={value}&page=2",
        f"a\\n{value}\\nb",
        f"\x1b[32m{value}\x1b[0m",
        f"({value})",
    ]


@pytest.mark.parametrize(("source", "row"), EXAMPLES, ids=lambda one: one["rule"] if isinstance(one, dict) else one)
def test_each_published_form_is_masked(source: str, row: dict[str, object]) -> None:
    parts, name = row["value"], row.get("name")
    assert isinstance(parts, list)
    assert len(parts) in {2, 3}, source
    value = "".join(parts)
    for text in surroundings(str(name) if name is not None else None, value):
        masked = redact.text(text)
        assert not leaks(parts[1], masked), (text, masked)
        assert redact.text(masked) == masked
    words = ["python", "train.py", f"{name}={value}"] if name is not None else ["python", "train.py", value]
    assert not leaks(parts[1], " ".join(redact.argv(words)))


def test_the_table_and_the_reference_are_large_enough() -> None:
    starts = [start for row in table("secrets.toml")["token"] for start in row.get("starts", row.get("contains"))]
    assert len(starts) > 150
    assert len(table("secrets.toml")["token"]) > 90
    assert len([row for _, row in EXAMPLES if "name" not in row]) > 100
