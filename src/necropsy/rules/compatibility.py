"""Which versions fit together (``builds.json``, ``cuda_libraries.toml`` and ``libraries.toml`` in ``data``)."""

from __future__ import annotations

import re
from typing import Any

from necropsy.data import table
from necropsy.model import Fix

Version = tuple[int, ...]
_WHEELS_SINCE = (8, 5)
"""cuDNN's first version of which PyPI has wheels; what was built for an older 8.x works with a newer one."""
_CU12_SINCE = (8, 9)
INDEX = "https://download.pytorch.org/whl"


def version(text: str) -> Version | None:
    """Parse ``8.1.0.``, ``(9, 1, 0)``, or an integer of cuDNN or CUDA (``7301``, ``90100``, ``11040``); else None.

    cuDNN's version is MAJOR * 1000 + MINOR * 100 + PATCH up to 8, and MAJOR * 10000 + ... from 9 on (cudnn_version.h);
    CUDA's is MAJOR * 1000 + MINOR * 10 (cudaRuntimeGetVersion), so that the three do not overlap.
    """
    numbers = [int(number) for number in re.findall(r"\d{1,9}", text)[:4]]
    if len(numbers) != 1:
        return tuple(numbers[:3]) or None
    one = numbers[0]
    if one >= 90000:
        return one // 10000, one % 10000 // 100, one % 100
    if one >= 10000:
        return one // 1000, one % 1000 // 10
    return (one // 1000, one % 1000 // 100, one % 100) if one >= 1000 else (one,)


def spelled(number: Version) -> str:
    """``8.1.0``."""
    return ".".join(str(part) for part in number)


def fits(loaded: Version, built: Version) -> bool:
    """TensorFlow's own rule (xla, cuda_dnn.cc): the same major version, and a minor version that is not lower."""
    return loaded[:1] == built[:1] and loaded[:2] >= built[:2]


def cudnn_for(built: Version) -> Fix:
    """How to get a cuDNN that serves what was built for ``built``."""
    major, minor = built[0], built[1] if len(built) > 1 else 0
    wanted = f"cuDNN {major}.{minor} or a later {major}.x"
    if major < 8:
        return Fix(text=f"Install {wanted}.", command=f"conda install -c conda-forge 'cudnn={major}.{minor}'")
    cuda = "cu12" if (major, minor) >= _CU12_SINCE else "cu11"
    least = max((major, minor), _WHEELS_SINCE)
    return Fix(
        text=f"Install {wanted} where the framework looks for it first"
        + (" (with PyTorch 2.11 and later: nvidia-cudnn-cu13)." if major >= 9 else "."),
        command=f"pip install 'nvidia-cudnn-{cuda}>={least[0]}.{least[1]},<{major + 1}'",
    )


def tensorflow_for_cudnn(loaded: Version) -> Fix | None:
    """The newest TensorFlow that works with the cuDNN that is there, where that is not simply the newest."""
    rows = _tensorflow()
    served = [(name, row) for name, row in rows if fits(loaded, version(row["cudnn"]) or (99,))]
    if not served or served[-1][0] == rows[-1][0]:
        return None
    name, row = served[-1]
    return Fix(
        text=f"Or keep cuDNN {spelled(loaded)}: TensorFlow {name} was built for {row['cudnn']} "
        f"(CUDA {row['cuda']}, Python {row['python']}).",
        command=f"pip install 'tensorflow=={name}.*'",
    )


def cudnn_of_tensorflow(installed: str) -> str | None:
    """The cuDNN that this release of TensorFlow was built with: ``2.20.0`` -> 9.3."""
    return dict(_tensorflow()).get(".".join(installed.split(".")[:2]), {}).get("cudnn")


def cuda_of_tensorflow(installed: str) -> str | None:
    """The CUDA that this release of TensorFlow was built with: ``2.20.0`` -> 12.5."""
    return dict(_tensorflow()).get(".".join(installed.split(".")[:2]), {}).get("cuda")


def cuda_of_torch(installed: str) -> str | None:
    """The CUDA that PyPI's wheel of this release of PyTorch was built with."""
    return _torch(installed).get("cuda")


def cudnn_of_torch(installed: str) -> str | None:
    """The cuDNN of PyPI's wheel; None of a wheel for another CUDA (``2.1.0+cu118``), which may have another one."""
    return _torch(installed).get("cudnn")


def _torch(installed: str) -> dict[str, str]:
    rows: dict[str, dict[str, str]] = table("builds.json")["torch"]
    return rows.get(".".join(installed.split(".")[:2]), {}) if "+" not in installed else {}


def instructions_of(name: str) -> list[dict[str, Any]]:
    """What the official builds of a package need of a processor: rows with ``machine``, ``since`` and ``needs``."""
    return [row for row in table("builds.json")["instructions"] if row["package"] == name]


def features_of_level(level: int) -> tuple[str, ...]:
    """What a microarchitecture level of x86-64 adds to the one below it, as /proc/cpuinfo spells it: 3 -> avx, avx2, ..."""
    codes: dict[str, dict[str, Any]] = table("cpu_features.json")["groups"]["CPU feature"]["codes"]
    found = (name for name, row in codes.items() if row.get("level") == f"x86-64-v{level}")
    return tuple({"lzcnt": "abm"}.get(name, name) for name in found)


def oldest_card(cuda: str) -> str | None:
    """The lowest compute capability that this CUDA can compile for: ``13.0`` -> 7.5."""
    rows: dict[str, list[str]] = table("builds.json")["architectures"]
    wanted = version(cuda) or ()
    known = [low for name, (low, _) in rows.items() if _number(name)[:2] <= wanted[:2]]
    return known[-1] if known and len(wanted) > 1 else None


def tensorflow_built_for_cudnn(built: Version) -> str | None:
    """``2.5 to 2.11``: the versions of TensorFlow that were built for this cuDNN; None where none was."""
    names = [name for name, row in _tensorflow() if (version(row["cudnn"]) or ())[:2] == built[:2]]
    return None if not names else names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _tensorflow() -> list[tuple[str, dict[str, Any]]]:
    rows: dict[str, dict[str, Any]] = table("builds.json")["tensorflow"]
    return [(name, row) for name, row in rows.items() if row.get("cudnn")]


# ---------------------------------------------------------------- drivers and cards


def driver_for(cuda: str) -> tuple[str, str] | None:
    """The oldest driver that runs programs of this CUDA, on Linux and on Windows: ``12.4`` -> 525.60.13, 527.41."""
    rows: dict[str, dict[str, str]] = table("builds.json")["driver"]
    row = rows.get(cuda) or rows.get(cuda.split(".", maxsplit=1)[0])
    return (row["linux"], row["windows"]) if row is not None else None


def cuda_of_driver(driver: str) -> Version | None:
    """The newest major version of CUDA that runs with a driver for Linux: ``535.104.05`` -> (12,)."""
    rows: dict[str, dict[str, str]] = table("builds.json")["driver"]
    have = version(driver) or ()
    return next((_number(cuda) for cuda, row in rows.items() if _number(row["linux"])[: len(have)] <= have), None)


def torch_for_cuda(highest: Version) -> Fix | None:
    """PyTorch for a driver that supports CUDA up to ``highest``: any minor version of the same major one runs."""
    major = highest[0]
    newest = {11: ("cu118", "2.7"), 12: ("cu126", "2.10")}.get(major)
    if newest is None:
        return None
    return Fix(
        text=f"Or install a PyTorch that was built for CUDA {major}: this driver runs it.",
        command=f"pip install torch --index-url {INDEX}/{newest[0]}",
    )


def tensorflow_for_cuda(highest: Version) -> Fix | None:
    """TensorFlow for a driver that supports CUDA up to ``highest``."""
    served = [(name, row) for name, row in _tensorflow() if (version(row["cuda"]) or (99,))[0] <= highest[0]]
    rows = _tensorflow()
    if not served or served[-1][0] == rows[-1][0]:
        return None
    name, row = served[-1]
    return Fix(
        text=f"Or install TensorFlow {name}: it was built for CUDA {row['cuda']} (Python {row['python']}).",
        command=f"pip install 'tensorflow[and-cuda]=={name}.*'",
    )


def capability(arch: str) -> Version | None:
    """``sm_120``, ``compute_86``, ``sm_90a``, ``12.0`` -> (12, 0), (8, 6), (9, 0), (12, 0)."""
    if match := re.fullmatch(r"(\d{1,2})\.(\d)", arch):
        return int(match[1]), int(match[2])
    if match := re.fullmatch(r"(?:sm|compute)_(\d{1,2})(\d)[a-z]?", arch):
        return int(match[1]), int(match[2])
    return None


def cuda_for_card(card: Version) -> tuple[str, str | None] | None:
    """The first CUDA whose compiler knows this card, and the first that has dropped it (None: it is not dropped)."""
    rows: dict[str, list[str]] = table("builds.json")["architectures"]
    known = [cuda for cuda, (low, high) in rows.items() if _number(low) <= card <= _number(high)]
    if not known:
        return None
    names = list(rows)
    after = names.index(known[-1]) + 1
    return known[0], names[after] if after < len(names) else None


def _number(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


# ---------------------------------------------------------------- missing libraries


def wheel_of(library: str) -> tuple[str | None, str | None] | None:
    """The pip and conda requirement, if any, of a CUDA library (``libcudnn.so.8``, ``cudart64_110.dll``); or None."""
    name = re.split(r"[/\\]", library)[-1]
    match = re.fullmatch(
        r"(?:lib)?(?P<name>[A-Za-z]+)[\w]*?(?:\.so)?(?:64)?[._]?(?P<number>[\d.]*)(?:\.so|\.dll)?", name
    )
    if match is None:
        return None
    base = match["name"].lower()
    rows = [row for row in table("cuda_libraries.toml")["row"] if row["library"].lower() == base]
    number = match["number"].strip(".")
    best = next((row for row in rows if any(_same(number, one) for one in row["soname"])), None)
    return None if best is None else (best.get("wheel"), best.get("conda"))


def _same(number: str, soname: str) -> bool:
    return number == soname or (soname != "" and number.startswith(soname + "."))


def package_of(library: str) -> dict[str, str] | None:
    """The row of ``libraries.toml`` for a library: the longest name that it begins with."""
    name = re.split(r"[/\\]", library)[-1].lower()
    rows: list[dict[str, str]] = [
        row for row in table("libraries.toml")["row"] if name.startswith(row["library"].lower())
    ]
    return max(rows, key=lambda row: len(row["library"]), default=None)


# ---------------------------------------------------------------- the C and C++ runtimes, NumPy, protobuf


def brought_by(symbol_version: str) -> str | None:
    """The first release with this runtime symbol version: ``GLIBCXX_3.4.30`` -> *GCC 12*; None if no row reaches it."""
    kind, _, number = symbol_version.partition("_")
    wanted = version(number)
    rows: dict[str, str] = table("builds.json")[{"GLIBCXX": "glibcxx", "GLIBC": "glibc"}.get(kind, "glibcxx")]
    if wanted is None or kind not in {"GLIBCXX", "GLIBC"}:
        return None
    found = next((who for one, who in rows.items() if _number(one) >= wanted), None)
    return f"GCC {found}" if found and kind == "GLIBCXX" else found


def numpy_of_api(api: str) -> str | None:
    """The first NumPy with this version of its C interface: ``0x10`` -> 1.23."""
    rows: dict[str, str] = table("builds.json")["numpy_api"]
    return rows.get(f"0x{int(api, 16):x}")


def needs_of_tensorflow(installed: str, package: str) -> str | None:
    """What a TensorFlow asks of ``numpy`` or ``protobuf``, as built rather than as declared; ``2.15.1`` -> <2.0.0,..."""
    rows: dict[str, dict[str, str]] = table("builds.json")["tensorflow"]
    row = rows.get(".".join(installed.split(".")[:2]))
    return None if row is None else row.get(f"{package}_built") or row.get(package)


TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")


def newest_tensorflow() -> tuple[str, str] | None:
    """The newest release of TensorFlow in the tables and the versions of Python it has builds for: (2.21, 3.10-3.13)."""
    rows: dict[str, dict[str, str]] = table("builds.json")["tensorflow"]
    name = max(rows, key=lambda one: version(one) or ())
    return (name, rows[name]["python"]) if rows[name].get("python") else None


def has_build_for(pythons: str, python: str) -> bool:
    """``3.9, 3.11-3.13`` has 3.12.4."""
    wanted = (version(python) or ())[:2]
    for part in pythons.split(","):
        low, _, high = part.strip().partition("-")
        if (version(low + ".0") or ())[:2] <= wanted <= (version((high or low) + ".0") or ())[:2]:
            return True
    return False
