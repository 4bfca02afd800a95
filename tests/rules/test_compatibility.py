"""Which versions fit together, and what to install where something does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy.data import table
from necropsy.diagnose import diagnose
from necropsy.model import Message
from necropsy.rules import compatibility, crash_rules
from necropsy.rules.loading import windows_error
from sketch import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.1.0.", (8, 1, 0)),
        ("(9, 1, 0)", (9, 1, 0)),
        ("8600", (8, 6, 0)),
        ("7301", (7, 3, 1)),
        ("90100", (9, 1, 0)),
        ("92800", (9, 28, 0)),
        ("11040", (11, 4)),
        ("12", (12,)),
        ("", None),
        ("no number", None),
    ],
)
def test_version(text: str, expected: tuple[int, ...] | None) -> None:
    assert compatibility.version(text) == expected


def test_hostile_versions() -> None:
    for text in ("9" * 5000, "1." * 50_000, "(" * 50_000):
        compatibility.version(text)


@pytest.mark.parametrize(
    ("loaded", "built", "fits"),
    [
        ((9, 3, 0), (9, 3, 0), True),
        ((9, 10), (9, 3), True),
        ((9, 1), (9, 3), False),
        ((9, 5), (8, 9), False),
        ((8, 9), (9, 0), False),
    ],
)
def test_the_rule_of_tensorflow(loaded: tuple[int, ...], built: tuple[int, ...], *, fits: bool) -> None:
    assert compatibility.fits(loaded, built) is fits


@pytest.mark.parametrize(
    ("built", "command"),
    [
        ((9, 3, 0), "pip install 'nvidia-cudnn-cu12>=9.3,<10'"),
        ((8, 9), "pip install 'nvidia-cudnn-cu12>=8.9,<9'"),
        ((8, 6), "pip install 'nvidia-cudnn-cu11>=8.6,<9'"),
        # PyPI has none before 8.5, and a later minor version serves.
        ((8, 1), "pip install 'nvidia-cudnn-cu11>=8.5,<9'"),
        ((7, 6), "conda install -c conda-forge 'cudnn=7.6'"),
    ],
)
def test_cudnn_for(built: tuple[int, ...], command: str) -> None:
    assert compatibility.cudnn_for(built).command == command


def test_tensorflow_for_what_is_there() -> None:
    fix = compatibility.tensorflow_for_cudnn((8, 0, 5))
    assert fix is not None
    assert fix.command == "pip install 'tensorflow==2.4.*'"
    # The newest works with it: no reason to install an old one.
    assert compatibility.tensorflow_for_cudnn((9, 10)) is None
    assert compatibility.tensorflow_built_for_cudnn((8, 1, 0)) == "2.5 to 2.11"
    assert compatibility.tensorflow_built_for_cudnn((6, 0)) is None
    older = compatibility.tensorflow_for_cuda((11, 4))
    assert older is not None
    assert older.command == "pip install 'tensorflow[and-cuda]==2.14.*'"


def test_drivers_and_cards() -> None:
    assert compatibility.driver_for("12.4") == ("525.60.13", "527.41")
    assert compatibility.driver_for("10.2") == ("440.33", "441.22")
    assert compatibility.driver_for("99") is None
    assert compatibility.capability("sm_120") == (12, 0)
    assert compatibility.capability("compute_86") == (8, 6)
    assert compatibility.capability("sm_90a") == (9, 0)
    assert compatibility.capability("12.0") == (12, 0)
    assert compatibility.capability("gfx1100") is None
    assert compatibility.cuda_for_card((12, 0)) == ("12.8", None)
    assert compatibility.cuda_for_card((6, 1)) == ("10.0", "13.0")
    assert compatibility.cuda_for_card((3, 0)) == ("10.0", "11.0")
    assert compatibility.cuda_for_card((99, 0)) is None
    fix = compatibility.torch_for_cuda((11, 4))
    assert fix is not None
    assert fix.command is not None
    assert fix.command.endswith("/cu118")


@pytest.mark.parametrize(
    ("library", "wheel"),
    [
        ("libcudnn.so.8", "nvidia-cudnn-cu12>=8.9,<9"),
        ("libcudnn_ops_infer.so.8", "nvidia-cudnn-cu12>=8.9,<9"),
        ("libcudnn_cnn.so.9.1.0", "nvidia-cudnn-cu12>=9,<10"),
        ("cudnn_cnn_infer64_8.dll", "nvidia-cudnn-cu12>=8.9,<9"),
        ("C:\\cuda\\bin\\cudart64_110.dll", "nvidia-cuda-runtime-cu11"),
        ("/usr/local/cuda/lib64/libcudart.so.12", "nvidia-cuda-runtime-cu12"),
        ("libcublasLt.so.11", "nvidia-cublas-cu11"),
        ("libcufft.so.11", "nvidia-cufft-cu12"),
        ("libcusparse.so.12", "nvidia-cusparse-cu12"),
        ("libcupti.so.11.8", "nvidia-cuda-cupti-cu11"),
    ],
)
def test_wheel_of(library: str, wheel: str) -> None:
    found = compatibility.wheel_of(library)
    assert found is not None
    assert found[0] == wheel


@pytest.mark.parametrize(
    "library", ["libGL.so.1", "libcuda.so.1", "libfoo.so", "", "a" * 100_000, "lib" + "64_" * 50_000]
)
def test_no_wheel_of(library: str) -> None:
    assert compatibility.wheel_of(library) is None


def test_package_of() -> None:
    row = compatibility.package_of("/usr/lib/libGL.so.1")
    assert row is not None
    assert row["apt"] == "libgl1"
    # The longest name counts: libxcb-cursor is not libxcb.
    assert (compatibility.package_of("libssl.so.1.1") or {}).get("apt") == "libssl1.1"
    assert (compatibility.package_of("libssl.so.3") or {}).get("apt") == "libssl3"
    assert compatibility.package_of("libmine.so") is None


def test_runtimes() -> None:
    assert compatibility.brought_by("GLIBCXX_3.4.30") == "GCC 12"
    assert compatibility.brought_by("GLIBCXX_3.4.31") == "GCC 13"
    assert compatibility.brought_by("GLIBC_2.34") == "RHEL 9"
    assert compatibility.brought_by("GLIBC_2.99") is None
    assert compatibility.brought_by("CXXABI_1.3.13") is None
    assert compatibility.numpy_of_api("0x10") == "1.23"
    assert compatibility.numpy_of_api("0x00000014") == "2.3"
    assert compatibility.numpy_of_api("0x99") is None
    assert compatibility.needs_of_tensorflow("2.15.1", "numpy") == "<2.0.0,>=1.23.5"
    # What was declared has no upper bound; it was built for NumPy 1 all the same.
    assert compatibility.needs_of_tensorflow("2.10.0", "numpy") == "<2"
    assert compatibility.needs_of_tensorflow("1.15", "numpy") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("DLL load failed while importing x: The specified module could not be found.", 126),
        ("DLL load failed while importing x: Das angegebene Modul wurde nicht gefunden.", 126),
        ("ImportError: DLL load failed: 找不到指定的模块。", 126),
        ("DLL load failed while importing x: Не найдена указанная процедура.", 127),
        ("DLL load failed: %1 n’est pas une application Win32 valide.", 193),
        (
            "DLL load failed while importing x: Une routine d’initialisation d’une bibliothèque de liens dynamiques (DLL) a échoué.",
            1114,
        ),
        ("El archivo de paginación es demasiado pequeño para completar la operación", 1455),
        ("libcudart.so.12: cannot open shared object file: No such file or directory", None),
    ],
)
def test_words_of_windows(text: str, number: int | None) -> None:
    assert windows_error(Message(kind="missing-library", text=text, where="log line 1")) == number


def test_numbers_of_windows() -> None:
    for code, number in (("126", 126), ("0x7E", 126), ("-1073741795", -1073741795)):
        message = Message(kind="missing-library", text="x", where="log line 1", fields={"code": code})
        assert windows_error(message) == number


def test_tables_are_whole() -> None:
    for row in table("cuda_libraries.toml")["row"]:
        assert row["soname"]
        assert "wheel" in row or "conda" in row
    names = [row["library"] for row in table("libraries.toml")["row"]]
    assert len(names) == len(set(names))
    for row in table("libraries.toml")["row"]:
        assert {"apt", "pip", "conda", "why"} & set(row), row
    for version, row in table("builds.json")["tensorflow"].items():
        assert compatibility.version(row["cudnn"]), version
        assert compatibility.version(row["cuda"]), version
        assert row["newest"].startswith(version + ".")
    win32 = {row["value"] for row in table("win32.json")["groups"]["Win32 error"]["codes"].values()}
    assert {row["code"] for row in table("windows_words.toml")["error"]} <= win32


def test_the_package_that_asked_for_numpy_is_what_is_to_be_upgraded() -> None:
    path = Path(__file__).parents[1] / "cases/numpy-abi-mismatch/names-the-package-that-imported-numpy.txt"
    verdict = diagnose(parse(path.read_text(encoding="utf-8")).crash, crash_rules()).verdict
    assert verdict is not None and verdict.culprit is not None
    assert verdict.culprit.module == "cv2" and verdict.culprit.line == 24
    assert "pip install -U opencv-python" in {fix.command for fix in verdict.fixes}
