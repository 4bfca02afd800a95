"""The page on the Python API: its examples do what it says, and no public name is missing."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

import pytest

import necropsy
from necropsy import errors

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python-api.md"


@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor of Linux")
def test_the_examples_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "reports"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) > 30
    said: list[str] = []
    outcome = doctest.DocTestRunner().run(examples, out=said.append)
    assert outcome.failed == 0, "".join(said)


def test_no_public_name_is_missing() -> None:
    """Those of ``necropsy.contain`` have a guide of their own."""
    text = PAGE.read_text()
    contained = {name for name, module in necropsy._MODULES.items() if module.startswith("necropsy.contain")}
    for name in set(necropsy.__all__) - {"__version__"} - contained:
        assert f"`{name}" in text, f"say in {PAGE} what {name} does"


def test_the_exit_codes_are_those_of_the_classes() -> None:
    rows = re.findall(r"^\| `(\w+Error)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 8
    assert [(name, int(code)) for name, code in rows] == [(name, getattr(errors, name).exit_code) for name, _ in rows]
