"""Campaigns on a Ray cluster of two nodes, both on this machine. The tests run where Ray is installed."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import needs
from necropsy import fuzzing
from necropsy.errors import NecropsyError
from necropsy.fuzz import test_writer as writer
from necropsy.fuzz.cluster import connected
from necropsy.fuzz.op_campaigns import Options, checked

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"), needs.command("gcc")]
has_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: necropsy[ray]")

SOURCE = "int at(const int *rows, long row) { return rows[row]; }"
BINDINGS = """
import ctypes
from pathlib import Path

native = ctypes.CDLL(str(Path(__file__).parent / "native.so"))
rows = (ctypes.c_int * 4)(1, 2, 3, 4)


def at(row: int) -> int:
    return native.at(rows, ctypes.c_long(row))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    made = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "native.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", "native.so", "native.c"], check=True)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    return checked(Options(calls=80, budget_s=120, guard="off"))


@has_ray
def test_two_nodes_find_what_one_process_finds(options: Options, cluster: Any) -> None:
    result = fuzzing.fuzz("bindings.py:at", calls=80, budget=120, guard="off", ray=cluster.address)
    assert result.complete
    (finding,) = result.findings
    assert finding.rule == "invalid-read"
    assert finding.test == "tests/fuzz/test_at.py"
    done = subprocess.run([sys.executable, "-c", "import test_at; test_at.test_at()"], cwd="tests/fuzz", check=False)
    assert done.returncode == -11


@has_ray
def test_a_node_that_is_killed_costs_no_finding(options: Options, cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    killed: list[Any] = []

    def watch(text: str) -> None:
        if "calls" in text and not killed:
            killed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    document, _ = fuzzing.fuzzed("bindings.py:at", Options(calls=200, guard="off", jobs=3, ray=cluster.address), watch)
    assert killed
    assert document.fuzz is not None
    assert [one.rule for one in document.fuzz.findings] == ["invalid-read"]


@has_ray
def test_no_cluster_there_is_one_line() -> None:
    with pytest.raises(NecropsyError, match="cannot connect to the Ray cluster"), connected("127.0.0.1:1"):
        pass


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NecropsyError, match="--ray needs Ray") as raised, connected("auto"):
        pass
    assert raised.value.hint == "pip install 'necropsy[ray]'"
    assert raised.value.exit_code == 125


def test_a_test_from_another_machine_finds_the_target_here(tmp_path: Path) -> None:
    there, here = Path("/node/tmp/op.so"), tmp_path / "build" / "op.so"
    place = Path("/node/tmp/tests/test_gather.py")
    text = f"x = Path(__file__).parent / {'../op.so'!r}\n"
    new = writer.moved(text, there, place, here, tmp_path / "tests" / "fuzz")
    assert new == tmp_path / "tests" / "fuzz" / "test_gather.py"
    assert new.read_text() == "x = Path(__file__).parent / '../../build/op.so'\n"
    assert writer.moved(text, there, place, here, tmp_path / "tests" / "fuzz") == new
    other = writer.moved(text + "# more\n", there, place, here, tmp_path / "tests" / "fuzz")
    assert other.name == "test_gather_2.py"
