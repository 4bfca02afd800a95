"""``necropsy fuzz`` on a library with bad ops and a correct one: one campaign for all tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import json_schema
import needs
from necropsy import serialize
from necropsy.capture.linux.supervise import guard_preload
from necropsy.cli.commands import cli
from necropsy.confirm.compiler import Builder
from necropsy.confirm.subreaper import descendants
from necropsy.fuzz.configurations import Configuration
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.opened_target import OpenTarget

SOURCE = Path(__file__).parent / "fuzzed_ops.cc"
NEEDS = {"Corner": [], "Scratched": ["threads"], "TwiceDone": ["graph"], "PutIntoSlots": []}
"""What kills the ops that die."""
BROKEN = {"EverySecond": "op-shape-function-wrong", "Doubled": "op-input-modified", "Counted": "op-nondeterministic"}

campaign_needs = [
    pytest.mark.tensorflow,
    needs.package("tensorflow"),
    needs.command("g++"),
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"),
]


class Fuzzed(NamedTuple):
    folder: Path
    code: int
    text: str
    document: dict[str, Any]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Fuzzed:
    folder = tmp_path_factory.mktemp("fuzzed")
    built = Builder(SOURCE, Path("ranks.so"), sys.executable, folder / "builds").build(("-O1", "-g"))
    shutil.copy(built, folder / "ranks.so")
    words = ["necropsy", "fuzz", "ranks.so", "--calls", "60", "--budget", "300", "--json", "found.json"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    return Fuzzed(folder, done.returncode, done.stdout, json.loads((folder / "found.json").read_bytes()))


class TestCampaign:
    pytestmark = campaign_needs

    def test_the_bad_op_is_found_and_its_twin_is_not(self, fuzzed: Fuzzed) -> None:
        assert fuzzed.code == 1
        findings = fuzzed.document["fuzz"]["findings"]
        assert {one["call"]["target"] for one in findings} == {*NEEDS, *BROKEN}
        rank = next(one for one in findings if one["rule"] == "check-failed")
        assert rank["reproduced"] == {"runs": 5, "crashed": 5}
        assert rank["culprit"]["op"] == "Corner"
        assert rank["elements"] == 1
        assert rank["call"]["inputs"]["x"]["dtype"] == "float32"
        targets = {one["name"]: one for one in fuzzed.document["fuzz"]["targets"]}
        assert targets["LockedScratched"]["deaths"] == 0
        assert targets["CheckedCorner"]["deaths"] == 0
        assert targets["CheckedCorner"]["accepted"] > 0
        assert targets["CheckedCorner"]["executions"] >= 60

    def test_a_worker_keeps_its_own_variables_and_has_a_limit(
        self, fuzzed: Fuzzed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        before = set(descendants(os.getpid()))
        with OpenTarget(str(fuzzed.folder / "ranks.so"), sys.executable, guard=False) as opened:
            (server,) = set(descendants(os.getpid())) - before
            variables = Path(f"/proc/{server}/environ").read_bytes().split(b"\0")
            assert {b"CUDA_VISIBLE_DEVICES=-1", b"TF_ENABLE_ONEDNN_OPTS=0"} <= set(variables)
            assert (opened.engine.limits.data or 0) > 256 << 20

    @pytest.mark.parametrize("op", NEEDS)
    def test_what_it_takes_to_die(self, fuzzed: Fuzzed, op: str) -> None:
        finding = next(one for one in fuzzed.document["fuzz"]["findings"] if one["call"]["target"] == op)
        assert [one for one in finding["needs"] if one != "guard"] == NEEDS[op]
        assert finding["reproduced"]["crashed"] > 0
        claims = [one["claim"] for one in finding["evidence"]]
        assert ("if one thread makes the same call, the process lives" in claims) is (op == "Scratched")

    @pytest.mark.parametrize(
        ("op", "said"),
        [
            ("Scratched", ("Failed: ",)),
            # Who uses the freed memory is a matter of chance: if the C library notices it, the guard shows the access.
            ("TwiceDone", ("Fatal Python error", "Failed: use-after-free")),
            ("PutIntoSlots", ("Fatal Python error",)),
        ],
    )
    def test_its_test_shows_it(self, fuzzed: Fuzzed, op: str, said: tuple[str, ...]) -> None:
        test = next(one["test"] for one in fuzzed.document["fuzz"]["findings"] if one["call"]["target"] == op)
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        installed = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PATH": installed}
        done = subprocess.run(
            words, cwd=fuzzed.folder, capture_output=True, text=True, env=variables, timeout=300, check=False
        )
        assert done.returncode != 0
        assert any(one in done.stdout + done.stderr for one in said), done.stdout

    @pytest.mark.parametrize("op", BROKEN)
    def test_a_promise_that_is_broken(self, fuzzed: Fuzzed, op: str) -> None:
        (finding,) = (one for one in fuzzed.document["fuzz"]["findings"] if one["call"]["target"] == op)
        assert finding["rule"] == BROKEN[op]
        assert finding["reproduced"] == {"runs": 5, "crashed": 5}
        assert finding["report"] is None
        assert "it showed in 5 of 5 runs" in " ".join(fuzzed.text.split())

    def test_the_tests_of_broken_promises_fail_by_name(self, fuzzed: Fuzzed) -> None:
        tests = [one["test"] for one in fuzzed.document["fuzz"]["findings"] if one["rule"] in BROKEN.values()]
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            words, cwd=fuzzed.folder, capture_output=True, text=True, env=variables, timeout=300, check=False
        )
        assert "3 failed" in done.stdout
        assert all(f"AssertionError: {rule}: " in done.stdout for rule in BROKEN.values())

    def test_the_document_is_as_the_schema_says(self, fuzzed: Fuzzed) -> None:
        schema = serialize.json_schema()
        assert json_schema.errors(fuzzed.document, schema, schema) == []
        document = serialize.loads((fuzzed.folder / "found.json").read_bytes())
        assert document.kind == "fuzz"
        assert document.complete
        assert len(document.reports) == len(fuzzed.document["fuzz"]["findings"]) - len(BROKEN)

    def test_the_text_ends_with_the_command(self, fuzzed: Fuzzed) -> None:
        tests = [one["test"] for one in fuzzed.document["fuzz"]["findings"]]
        assert fuzzed.text.splitlines()[-len(tests) :] == [
            f"  python -m pytest -p no:cacheprovider {test}" for test in tests
        ]
        assert ". Corner: " in fuzzed.text

    def test_the_written_test_dies(self, fuzzed: Fuzzed) -> None:
        rank = next(one for one in fuzzed.document["fuzz"]["findings"] if one["rule"] == "check-failed")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", rank["test"]]
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(words, cwd=fuzzed.folder, capture_output=True, env=variables, timeout=300, check=False)
        assert done.returncode == -6, done.stdout


class TestInputs:
    pytestmark = campaign_needs

    @pytest.mark.skipif(not guard_preload.LIBRARY.exists(), reason="there is no guard: no compiler at installation")
    def test_each_input_is_guarded(self) -> None:
        """Of NumPy's small arrays, one in four is so aligned that a tensor would share its memory."""
        behind = "(lambda x: __import__('ctypes').string_at(np.asarray(memoryview(x)).ctypes.data + 64, 64))"
        engine = Engine(sys.executable, {"pattern": "Identity"}, guard=True)
        try:
            engine.use(Configuration(guard="end"))
            engine.limit_seconds(120.0)  # the machine may be busy
            ends = [
                engine.run([(behind, f"x=tf.constant(np.full([{many}], 1.0, np.float32))")], fresh=True)[-1].kind
                for many in range(1, 16)
            ]
        finally:
            engine.close()
        assert ends == ["died"] * 15


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere.so"], 66, "there is no file nowhere.so"),
        (["text.so"], 65, "text.so is not a built op library (an ELF file)"),
        (["op.so", "--python", "/nowhere/python"], 125, "cannot run /nowhere/python"),
        (["op.so", "--budget", "0"], 2, "--budget"),
        (["op.so", "--"], 2, "there is no command after --"),
        (["op.so", "--json", "nowhere/found.json"], 125, "cannot write nowhere/found.json"),
    ],
)
def test_what_is_refused(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.so").write_text("no library")
    Path("op.so").write_bytes(b"\x7fELF")
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", "fuzz", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_help_names_the_exit_codes() -> None:
    assert "Ends with 0 if nothing was found" in " ".join(CliRunner().invoke(cli, ["fuzz", "--help"]).output.split())
