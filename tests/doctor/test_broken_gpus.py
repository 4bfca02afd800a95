"""GPUs, drivers and CUDA's libraries that are broken in one way each.

No GPU is needed: /proc, /sys and /dev lie in a folder, and the driver's library is a small one that a real process loads.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from doctor_building import NATIVE, OF_THE_MACHINE, PURE, Venv, after, library, needs_compiler, wheel
from environment_sketch import environment
from necropsy.doctor.collect import Wanted, collect
from necropsy.examine import Examination, examine
from necropsy.model import Diagnosis, Environment
from necropsy.rules import environment_rules
from necropsy.rules.env import env_gpu_unused

pytestmark = needs_compiler
DRIVER = """
int cuInit(unsigned flags) {{ {before} return {answer}; }}
int cuDriverGetVersion(int *v) {{ *v = {supports}; return 0; }}
int cuDeviceGetCount(int *n) {{ *n = 1; return 0; }}
int cuDeviceGet(int *d, int i) {{ *d = i; return 0; }}
int cuDeviceGetName(char *name, int n, int d) {{ name[0] = 'A'; name[1] = 0; return 0; }}
int cuDeviceGetAttribute(int *v, int what, int d) {{ *v = what == 75 ? {major} : {minor}; return 0; }}
"""


@dataclass
class Machine:
    """A machine below ``root``, and the folder with the driver's library."""

    root: Path
    folder: Path
    variables: dict[str, str]

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def gpu(self) -> None:
        self.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
        self.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")

    def driver(
        self,
        kernel: str = "570.124.06",
        user: str = "570.124.06",
        *,
        answer: int = 0,
        supports: int = 12080,
        card: tuple[int, int] = (8, 9),
        before: str = "",
    ) -> None:
        """A GPU, the kernel module, the device file and the library, found by LD_LIBRARY_PATH."""
        self.gpu()
        self.write("dev/nvidia0", "")
        line = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {kernel}  Wed Feb 26 01:54:06 UTC 2025\n"
        self.write("proc/driver/nvidia/version", line)
        code = DRIVER.format(answer=answer, supports=supports, major=card[0], minor=card[1], before=before)
        library(self.folder / f"libcuda.so.{user}", code)
        link = self.folder / "libcuda.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"libcuda.so.{user}")
        self.variables = {"LD_LIBRARY_PATH": str(self.folder)}

    def environment(self, venv: Venv) -> Environment:
        return collect(Wanted(python=venv.python, variables={**os.environ, **self.variables}, root=str(self.root)))

    def answers(self, venv: Venv) -> Examination:
        return asked(self.environment(venv))

    def finding(self, venv: Venv, rule: str) -> Diagnosis:
        """The one finding that there is."""
        found = self.answers(venv).findings
        assert [one.rule for one in found] == [rule], [one.summary for one in found]
        return found[0]


def asked(environment: Environment) -> Examination:
    """What the rules say, without what they say of this machine."""
    answers = examine(environment, environment_rules())
    return replace(answers, findings=tuple(one for one in answers.findings if one.rule not in OF_THE_MACHINE))


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv.make(tmp_path / "env")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "root", tmp_path / "driver", {})
    made.write("proc/cpuinfo", "model name\t: A processor\nflags\t\t: fpu sse4_2 avx\n")
    return made


def fake(folder: Path, name: str) -> Path:
    return library(folder / name, "int f(void) { return 1; }", f"-Wl,-soname,{name}")


def torch(venv: Venv, tmp: Path, *, cuda: str | None = "12.8", cudnn: bool = False, archs: str = "sm_80 sm_90") -> None:
    venv.install("torch", "2.9.0", torch_files(tmp, cuda, cudnn=cudnn, archs=archs), tags=NATIVE)


def torch_files(
    tmp: Path, cuda: str | None, *, cudnn: bool = False, archs: str = "sm_80 sm_90"
) -> dict[str, str | Path]:
    """A PyTorch whose library needs CUDA's, found where its wheels lie."""
    files: dict[str, str | Path] = {
        "torch/__init__.py": "",
        "torch/version.py": f"from typing import Optional\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n",
    }
    if cuda is not None:
        needed = [fake(tmp / "built", "libcudnn.so.9")] if cudnn else []
        runpath = "-Wl,--no-as-needed,--enable-new-dtags,-rpath,$ORIGIN/../../nvidia/cudnn/lib"
        files["torch/lib/libtorch_cuda.so"] = library(
            tmp / "built/libtorch_cuda.so", "int g;", runpath, *map(str, needed)
        )
        files["torch/lib/libtorch_python.so"] = library(
            tmp / "built/libtorch_python.so", f'const char *list = "{archs}";'
        )
    return files


PARTS = ("graph", "ops", "cnn", "adv", "heuristic", "engines_runtime_compiled")


def cudnn_files(tmp: Path) -> dict[str, str | Path]:
    names = ["libcudnn.so.9", *(f"libcudnn_{part}.so.9" for part in PARTS)]
    return {f"nvidia/cudnn/lib/{name}": fake(tmp / "wheel", name) for name in names}


def tensorflow(venv: Venv, tmp: Path, *, tags: tuple[str, ...] = NATIVE) -> None:
    """TensorFlow 2.20 as it is built for CUDA: it opens CUDA's libraries by their names."""
    info = {
        "cuda_version": "12.5.1",
        "cudnn_version": "9",
        "is_cuda_build": True,
        "cuda_compute_capabilities": ["sm_80", "compute_90"],
    }
    framework = library(tmp / "built/libtensorflow_framework.so.2", "int t;", "-Wl,-rpath,$ORIGIN/../nvidia/cudnn/lib")
    files: dict[str, str | Path] = {
        "tensorflow/__init__.py": "",
        "tensorflow/libtensorflow_framework.so.2": framework,
        "tensorflow/python/platform/build_info.py": f"import collections\nbuild_info = collections.OrderedDict({list(info.items())!r})\n",
    }
    venv.install("tensorflow", "2.20.0", files, tags=tags)


OPENED = "cudart.so.12 cublas.so.12 cublasLt.so.12 cufft.so.11 cusolver.so.11 cusparse.so.12"


def test_builds_for_cuda_are_healthy_without_a_gpu(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path)
    tensorflow(venv, tmp_path)
    answers = machine.answers(venv)
    assert answers.findings == ()
    reasons = {one.reason for one in answers.not_tried if not one.reason.endswith("not observed")}
    assert reasons == {"no NVIDIA GPU was found"}
    machine.driver()
    machine.variables["CUDA_VISIBLE_DEVICES"] = "-1"
    assert machine.answers(venv).findings == ()


def test_a_gpu_without_its_driver(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path)
    machine.gpu()
    finding = machine.finding(venv, "env-cuda-driver-missing")
    assert finding.severity == "warning"
    assert "the driver's kernel module is not loaded" in finding.summary
    machine.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed\n")
    assert machine.finding(venv, "env-cuda-driver-missing").severity == "note", "a container that was given none"
    machine.driver()
    assert machine.answers(venv).findings == ()


def test_a_card_that_a_virtual_machine_has_is_none_of_ours(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path)
    machine.gpu()
    machine.write("sys/bus/pci/drivers/vfio-pci/bind", "")
    (machine.root / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to(machine.root / "sys/bus/pci/drivers/vfio-pci")
    assert machine.environment(venv).gpus == ()


def test_onnxruntime_gpu_without_a_gpu(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    needed = fake(tmp_path / "built", "libcudart.so.12")
    provider = library(tmp_path / "p.so", "int p;", "-Wl,--no-as-needed", str(needed))
    path = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    venv.install("onnxruntime_gpu", "1.22.0", {"onnxruntime/__init__.py": "", path: provider}, tags=NATIVE)
    venv.add_pip()
    wheel(tmp_path / "wheels", "onnxruntime", "1.22.0")
    finding = machine.finding(venv, "env-cuda-driver-missing")
    assert finding.severity == "warning"
    assert venv.python in (finding.fixes[0].command or "")
    venv.repair(finding, tmp_path / "wheels")
    assert machine.answers(venv).findings == ()


def test_a_driver_that_is_too_old(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path, cuda="13.0")
    machine.driver("535.104.05", "535.104.05", supports=12020)
    finding = machine.finding(venv, "env-cuda-driver-too-old")
    assert "needs NVIDIA's driver 580.65.06 or later, and 535.104.05 is installed" in finding.summary
    assert shlex.split(finding.fixes[0].command or "")[-2:] == ["--index-url", "https://download.pytorch.org/whl/cu126"]
    torch(venv, tmp_path, cuda="12.8")
    assert machine.answers(venv).findings == (), "any driver for CUDA 12 runs each 12.x"


def test_two_parts_of_the_driver(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path)
    machine.driver("535.104.05", "570.124.06", answer=803)
    finding = machine.finding(venv, "env-cuda-driver-mismatch")
    assert finding.confidence == "certain"
    assert finding.fixes[0].command == "unset LD_LIBRARY_PATH"
    machine.driver("535.104.05", "570.124.06")
    assert machine.answers(venv).findings == (), "what the driver accepts is no mismatch"


def test_a_driver_that_crashes_does_not_end_doctor(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path)
    machine.driver(before="*(volatile int *)0 = 1;")
    environment = machine.environment(venv)
    gap = environment.gap("gpu")
    assert gap is not None
    assert gap.why.endswith("the process that loaded it died by SIGSEGV")
    assert asked(environment).findings == ()


def test_a_library_that_pytorch_cannot_be_imported_without(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path, cudnn=True)
    finding = machine.finding(venv, "env-cuda-library-missing")
    assert finding.severity == "error"
    assert finding.fixes[0].command == f"pip --python {venv.python} install --force-reinstall torch==2.9.0"
    venv.install("nvidia_cudnn_cu12", "9.10.2.21", cudnn_files(tmp_path), tags=PURE)
    assert machine.answers(venv).findings == ()


def test_libraries_that_tensorflow_does_not_find(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    tensorflow(venv, tmp_path)
    machine.driver()
    finding = machine.finding(venv, "env-cuda-library-missing")
    assert finding.severity == "warning"
    assert finding.fixes[0].command == f"pip --python {venv.python} install 'tensorflow[and-cuda]==2.20.0'"
    # Installed, but in folders that this build does not search.
    files: dict[str, str | Path] = {
        f"nvidia/all/lib/lib{name}": fake(tmp_path / "all", f"lib{name}") for name in OPENED.split()
    }
    venv.install("nvidia_all", "12.5", files)
    venv.install("nvidia_cudnn_cu12", "9.10.2.21", cudnn_files(tmp_path))
    command = machine.finding(venv, "env-cuda-library-missing").fixes[0].command
    assert command is not None
    printed = subprocess.run(
        f"{command}; printenv LD_LIBRARY_PATH", shell=True, capture_output=True, text=True, check=True
    )
    machine.variables["LD_LIBRARY_PATH"] = printed.stdout.strip()
    assert machine.answers(venv).findings == ()


def test_a_cudnn_for_another_cuda(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path, cuda="13.0", cudnn=True)
    venv.install("nvidia_cudnn_cu12", "9.20.0.48", cudnn_files(tmp_path))
    venv.add_pip()
    wheel(tmp_path / "wheels", "nvidia_cudnn_cu13", "9.20.0.48", cudnn_files(tmp_path))
    finding = machine.finding(venv, "env-cuda-library-mixed")
    venv.repair(finding, tmp_path / "wheels")
    assert machine.answers(venv).findings == ()


def test_two_cudas_in_one_process(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    old, new = fake(tmp_path / "c", "libcudart.so.11.0"), fake(tmp_path / "c", "libcudart.so.12")
    files: dict[str, str | Path] = {"torch/__init__.py": "", f"torch/{old.name}": old, f"torch/{new.name}": new}
    inner = library(tmp_path / "libinner.so", "int i;", "-Wl,--no-as-needed", "-Wl,-soname,libinner.so", str(old))
    outer = library(tmp_path / "_C.so", "int o;", "-Wl,--no-as-needed", str(inner), str(new), "-Wl,-rpath,$ORIGIN")
    venv.install("torch", "2.9.0", {**files, "torch/libinner.so": inner, "torch/_C.so": outer}, tags=NATIVE)
    assert "CUDA 11 and CUDA 12" in machine.finding(venv, "env-cuda-library-mixed").summary
    venv.add_pip()
    inner = library(tmp_path / "new/libinner.so", "int i;", "-Wl,--no-as-needed", "-Wl,-soname,libinner.so", str(new))
    del files[f"torch/{old.name}"]
    whole = {**files, "torch/libinner.so": inner, "torch/_C.so": outer}
    wheel(tmp_path / "wheels", "torch", "2.9.0", whole, tags=NATIVE)
    venv.repair(machine.finding(venv, "env-cuda-library-mixed"), tmp_path / "wheels")
    assert machine.answers(venv).findings == ()


def test_two_cudas_in_one_process_by_ld_library_path(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    other, made = tmp_path / "other", tmp_path / "made"
    new, named = fake(made, "libcudart.so.12"), ("-Wl,--no-as-needed", "-Wl,-soname,libinner.so")
    library(other / "libinner.so", "int i, old;", *named, str(fake(other, "libcudart.so.11.0")))
    inner = library(made / "libinner.so", "int i;", *named, str(new))
    outer = library(made / "_C.so", "int o;", *named[:1], str(inner), str(new), "-Wl,--enable-new-dtags,-rpath,$ORIGIN")
    venv.install(
        "torch", "2.9.0", {"torch/__init__.py": "", **{f"torch/{one.name}": one for one in (new, inner, outer)}}
    )
    machine.variables = {"LD_LIBRARY_PATH": str(other)}
    finding = machine.finding(venv, "env-cuda-library-mixed")
    machine.variables = after(finding, machine.variables)
    assert machine.answers(venv).findings == ()


def test_a_cudnn_that_is_too_old(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    tensorflow(venv, tmp_path)
    fake(tmp_path / "old", "libcudnn.so.9").rename(tmp_path / "old/libcudnn.so.9.1.0")
    (tmp_path / "old/libcudnn.so.9").symlink_to("libcudnn.so.9.1.0")
    machine.variables = {"LD_LIBRARY_PATH": f"/nonexistent:{tmp_path / 'old'}"}
    finding = machine.finding(venv, "env-cudnn-version-mismatch")
    assert "was built with cuDNN 9.3, and would load cuDNN 9.1.0, which is older" in finding.summary
    assert finding.fixes[0].command == "export LD_LIBRARY_PATH=/nonexistent"
    machine.variables = {"LD_LIBRARY_PATH": "/nonexistent"}
    assert machine.answers(venv).findings == ()


def test_a_part_of_cudnn_that_is_gone(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path, cudnn=True)
    venv.install("nvidia_cudnn_cu12", "9.10.2.21", cudnn_files(tmp_path))
    venv.add_pip()
    wheel(tmp_path / "wheels", "nvidia_cudnn_cu12", "9.10.2.21", cudnn_files(tmp_path))
    (venv.site / "nvidia/cudnn/lib/libcudnn_cnn.so.9").unlink()
    finding = machine.finding(venv, "env-cudnn-incomplete")
    assert "`libcudnn_cnn.so.9` is missing" in finding.summary
    venv.repair(finding, tmp_path / "wheels")
    assert machine.answers(venv).findings == ()


def test_a_gpu_that_the_build_has_no_code_for(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path)
    machine.driver(card=(12, 0))
    finding = machine.finding(venv, "env-gpu-arch-unsupported")
    assert "has no code for this GPU, A (compute capability 12.0): it was built for sm_80, sm_90" in finding.summary
    torch(venv, tmp_path, archs="sm_80 compute_90")
    assert machine.answers(venv).findings == (), "the driver translates what is for 9.0 and later"


def test_a_gpu_that_the_build_does_not_use(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    torch(venv, tmp_path, cuda=None)
    machine.driver()
    finding = machine.finding(venv, "env-gpu-unused")
    assert finding.severity == "note"
    assert venv.python in (finding.fixes[0].command or "")
    venv.add_pip()
    needs = ("nvidia-cudnn-cu12",)
    wheel(tmp_path / "wheels", "torch", "2.9.0", torch_files(tmp_path, "12.8", cudnn=True), tags=NATIVE, requires=needs)
    wheel(tmp_path / "wheels", "nvidia_cudnn_cu12", "9.10.2.21", cudnn_files(tmp_path))
    venv.repair(machine.finding(venv, "env-gpu-unused"), tmp_path / "wheels")
    assert machine.answers(venv).findings == ()


def test_the_build_for_cuda_that_conda_has() -> None:
    """It has the same name and version as the one without."""
    sketch = env_gpu_unused.RULE.hit.replace("tensorflow-cpu 2.20.0 checked", "tensorflow-cpu 2.20.0 checked conda")
    finding = env_gpu_unused.RULE.match(environment(sketch))
    assert finding is not None
    assert "'tensorflow-cpu=2.20.0=*cuda*'" in (finding.fixes[0].command or "")


def test_a_processor_without_avx(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    tensorflow(venv, tmp_path, tags=(NATIVE[0].replace("linux_", "manylinux_2_17_"),))
    assert machine.answers(venv).findings == ()
    machine.write("proc/cpuinfo", "model name\t: Westmere\nflags\t\t: fpu sse4_2\n")
    expected = os.uname().machine == "x86_64"
    assert [one.rule for one in machine.answers(venv).findings] == ["env-cpu-features"] * expected


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="levels of x86-64")
def test_a_library_that_is_marked_for_newer_processors(venv: Venv, machine: Machine, tmp_path: Path) -> None:
    built = library(tmp_path / "_c.so", "int c;", "-Wl,-z,x86-64-v3")
    venv.install("torch", "2.9.0", {"torch/__init__.py": "", "torch/_c.so": built}, tags=NATIVE)
    finding = machine.finding(venv, "env-cpu-features")
    assert "`_c.so` of torch 2.9.0 needs a processor of level x86-64-v3, and this one lacks" in finding.summary
    flags = "cx16 popcnt ssse3 sse4_1 sse4_2 avx avx2 fma f16c bmi1 bmi2 movbe abm"
    machine.write("proc/cpuinfo", f"flags\t\t: {flags}\n")
    assert machine.answers(venv).findings == ()
