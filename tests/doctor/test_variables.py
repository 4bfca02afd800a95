"""Variables that nothing reads, that are not understood, that contradict each other or that are a risk; and harmless ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_building import NATIVE, Venv, after, library, needs_compiler
from necropsy.data import table
from necropsy.doctor.variables import close_to, known_names
from necropsy.model import Diagnosis, Document

XLA = ('const char *a = "xla_known", *b = "tf_xla_known", *c = "xla_gpu_autotune_level", *d = "TF_OLD_NAMES";',)


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    made = Venv.make(tmp_path / "env")
    made.install("reader", "1.0", {"reader/__init__.py": "import os\nos.environ.get('CUDA_VISIBLE_DEVISES')\n"})
    return made


def with_tensorflow(venv: Venv, tmp_path: Path) -> None:
    built = library(tmp_path / "libtensorflow_cc.so.2", "\n".join(XLA))
    files: dict[str, str | Path] = {"tensorflow/__init__.py": "", "tensorflow/libtensorflow_cc.so.2": built}
    venv.install("tensorflow", "2.20.0", files, tags=NATIVE)


def found_and_cured(venv: Venv, rule: str, variables: dict[str, str]) -> Diagnosis:
    finding = venv.finding(rule, "reader", variables=variables)
    with pytest.MonkeyPatch.context() as patch:
        for name in variables:
            patch.delenv(name, raising=False)
        assert venv.examine("reader", variables=after(finding, variables)).findings == ()
    return finding


@pytest.mark.parametrize(
    ("rule", "variables", "severity"),
    [
        ("env-variable-invalid", {"TF_CPP_MIN_LOG_LEVEL": "ERROR"}, "warning"),
        ("env-variable-invalid", {"TF_DETERMINISTIC_OPS": "yes"}, "error"),
        ("env-variable-invalid", {"KERAS_BACKEND": "tf"}, "error"),
        ("env-variable-invalid", {"OMP_NUM_THREADS": "0"}, "warning"),
        ("env-variable-invalid", {"TF_FORCE_GPU_ALLOW_GROWTH": "1"}, "warning"),
        ("env-variable-risky", {"KMP_DUPLICATE_LIB_OK": "TRUE"}, "warning"),
        ("env-variable-risky", {"OMP_STACKSIZE": "64"}, "warning"),
        ("env-variable-risky", {"CUDA_LAUNCH_BLOCKING": "1"}, "note"),
        ("env-variable-conflict", {"OMP_NUM_THREADS": "8", "OMP_THREAD_LIMIT": "4"}, "warning"),
        ("env-variable-conflict", {"CUDA_FORCE_PTX_JIT": "1", "CUDA_DISABLE_PTX_JIT": "1"}, "error"),
    ],
)
def test_a_value_is_named_and_the_command_cures_it(
    venv: Venv, rule: str, variables: dict[str, str], severity: str
) -> None:
    if rule == "env-variable-conflict" and "CUDA_FORCE_PTX_JIT" in variables:
        document = venv.examine("reader", variables=variables)
        assert {one.rule for one in document.findings} == {rule, "env-variable-risky"}
        return
    finding = found_and_cured(venv, rule, variables)
    assert finding.severity == severity
    name, value = next(iter(variables.items()))
    assert any(one.seen == f"{name}={value}" for one in finding.evidence)


def test_a_misspelt_name_is_named_without_its_value(venv: Venv) -> None:
    finding = found_and_cured(venv, "env-variable-misspelt", {"CUDA_VISIBLE_DEVICE": "hunter2"})
    assert "CUDA_VISIBLE_DEVICES is probably meant" in finding.summary
    assert "hunter2" not in repr(finding)


def test_a_name_that_a_package_or_the_users_script_reads_is_not_misspelt(
    venv: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"CUDA_VISIBLE_DEVISES": "0"}
    assert venv.examine("reader", variables=variables).findings == ()
    assert [one.rule for one in venv.examine(variables=variables).findings] == ["env-variable-misspelt"]
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['CUDA_VISIBLE_DEVISES'])\n")
    monkeypatch.chdir(tmp_path)
    assert venv.examine(variables=variables).findings == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TF_CPP_MIN_LOGLEVEL", "TF_CPP_MIN_LOG_LEVEL"),
        ("LD_LIBARY_PATH", "LD_LIBRARY_PATH"),
        ("omp_num_threads", "OMP_NUM_THREADS"),
        ("PYTHONUNBUFERED", "PYTHONUNBUFFERED"),
        ("LD_LIBRARY_PATH_ORIG", None),
        ("PYTHON_PATH", None),
        ("CUDA_HOME", None),
        ("NCCL_VERSION", None),
        ("MY_CUDA_VISIBLE_DEVICES", None),
    ],
)
def test_which_names_are_close(name: str, meant: str | None) -> None:
    assert close_to(name) == meant


@needs_compiler
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"XLA_FLAGS": "--xla_known=1 --xla_no_such=2"}, "--xla_no_such=2 in XLA_FLAGS"),
        ({"TF_XLA_FLAGS": "--tf_xla_no_such"}, "--tf_xla_no_such in TF_XLA_FLAGS"),
        ({"XLA_FLAGS": "--tf_xla_known=1"}, "it is a flag for TF_XLA_FLAGS"),
        ({"TF_XLA_FLAGS": "--xla_gpu_autotune_level=0"}, "it is a flag for XLA_FLAGS"),
        ({"XLA_FLAGS": "xla_known=1"}, "names a file that cannot be opened"),
    ],
)
def test_a_flag_that_no_library_knows_is_an_error(
    venv: Venv, tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    with_tensorflow(venv, tmp_path)
    finding = found_and_cured(venv, "env-variable-invalid", variables)
    assert finding.severity == "error"
    assert words in finding.summary


@needs_compiler
def test_flags_that_are_known_and_a_file_of_them(venv: Venv, tmp_path: Path) -> None:
    with_tensorflow(venv, tmp_path)
    (tmp_path / "flags.txt").write_text("--xla_known=1\n--xla_gpu_autotune_level=0\n")
    for value in ("--xla_known=1 word", str(tmp_path / "flags.txt"), ""):
        assert venv.examine(variables={"XLA_FLAGS": value}).findings == (), value
    # Without a framework that reads them, nobody can tell.
    assert Venv.make(tmp_path / "other").examine(variables={"XLA_FLAGS": "--xla_no_such"}).findings == ()


def test_keras_2_is_asked_for_and_not_installed(venv: Venv) -> None:
    venv.install("tensorflow", "2.20.0")
    finding = venv.finding("env-variable-conflict", variables={"TF_USE_LEGACY_KERAS": "1"})
    assert finding.fixes[0].command == f"{venv.python} -m pip install 'tf-keras~=2.20.0'"
    venv.install("tf-keras", "2.20.0", {"tf_keras/__init__.py": ""})
    assert venv.examine(variables={"TF_USE_LEGACY_KERAS": "1"}).findings == ()


def test_harmless_variables(venv: Venv) -> None:
    harmless = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "OMP_NUM_THREADS": "4,2",
        "OMP_STACKSIZE": "16M",
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_AFFINITY": "disabled",
        "CUDA_VISIBLE_DEVICES": "-1",
        "CUDA_LAUNCH_BLOCKING": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_HOME": "/usr/local/cuda",
        "CUDA_VERSION": "12.4",
        "NCCL_VERSION": "2.21",
        "NCCL_DEBUG": "INFO",
        "KERAS_BACKEND": "tensorflow",
        "MALLOC_ARENA_MAX": "2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONHASHSEED": "0",
        "PYTHON_VERSION": "3.11",
        "PYTHON_PATH": "/usr/bin",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "OMP_DYNAMIC": "TRUE",
        "LD_BIND_NOW": "1",
        "MKL_NUM_THREADS": "1",
        "KMP_BLOCKTIME": "0",
    }
    document: Document = venv.examine("reader", variables=harmless)
    assert document.findings == ()


def test_the_table_says_where_each_row_was_read() -> None:
    rows = table("variables.toml")
    assert all(row["source"] for row in (*rows["variable"], *rows["names"]))
    for row in rows["variable"]:
        assert "values" in row or "risky" in row, row["name"]
        assert set(row) >= ({"expected", "else", "severity"} if "values" in row else set())
        assert set(row) >= ({"risk", "weight", "remedy"} if "risky" in row else set())
    names = [*(row["name"] for row in rows["variable"]), *(name for row in rows["names"] for name in row["names"])]
    assert len(names) == len(known_names()), "a name stands twice"
