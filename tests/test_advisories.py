"""How TensorFlow's advisories are read: facts only, from texts that vary in their form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent.parent / "scripts" / "rebuild_advisories.py"

PADDING = """\
## TFSA-2030-001: Division by 0 in `PadTwice*` and CropOnce

### CVE Number
CVE-2030-00001

### Impact
A `CHECK`-fail in `tf.raw_ops.Other` is something else.

### Patches
We have patched the issue in GitHub commit
[0123456789abcdef](https://github.com/tensorflow/tensorflow/commit/0123456789abcdef) (see v1.1).

The fix will be included in TensorFlow 2.11. We will also cherrypick this commit on TensorFlow 2.10.1, 2.9.3, and
TensorFlow 2.8.4.
"""
OLDER = """\
## TFSA-2030-002: Incomplete validation

### CVE Number
CVE-2030-00002

### Impact
`tf.raw_ops.CropOnce` leads to a heap out-of-bounds read.

### Vulnerable Versions
TensorFlow 2.2.0, 2.3.0.

### Patches
We will release patch releases for all versions between 1.15 and 2.3. We recommend users to upgrade to TensorFlow 2.2.1, or
2.3.1.
"""


def rows(folder: Path) -> list[dict[str, Any]]:
    advisories = folder / "tensorflow" / "security" / "advisory"
    history = folder / "tensorflow" / "core" / "ops" / "compat" / "ops_history_v2"
    advisories.mkdir(parents=True)
    history.mkdir(parents=True)
    for op in ("PadTwice", "PadTwiceGrad", "CropOnce", "Other"):
        (history / f"{op}.pbtxt").touch()
    (advisories / "tfsa-2030-001.md").write_text(PADDING)
    (advisories / "tfsa-2030-002.md").write_text(OLDER)
    code = "import sys, rebuild_advisories as it; print(it.rebuild(it.Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=SCRIPT.parent, capture_output=True, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["advisories"]
    return found


def test_facts_of_an_advisory(tmp_path: Path) -> None:
    first, second = rows(tmp_path)
    assert first == {
        "id": "TFSA-2030-001",
        "cve": "CVE-2030-00001",
        "kinds": ["division"],
        "ops": ["PadTwice", "PadTwiceGrad", "CropOnce"],
        "fixed": ["2.8.4", "2.9.3", "2.10.1", "2.11.0"],
    }
    assert second == {
        "id": "TFSA-2030-002",
        "cve": "CVE-2030-00002",
        "kinds": ["read", "bounds"],
        "ops": ["CropOnce"],
        "since": "2.2.0",
        "fixed": ["2.2.1", "2.3.1"],
    }


def test_no_checkout_is_told(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is it a checkout of TensorFlow?" in done.stderr
