"""NVIDIA: error codes of CUDA and its libraries, from the headers in NVIDIA's own wheels.

What is taken is the names and numbers, and the sentences that ``cudaGetErrorString`` prints: facts of an interface. The
meanings in the table are our own words.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

from tables.sources import Sources

RUNTIME = "nvidia-cuda-runtime-cu12"
Names = dict[str, int]


def _enum(path: str, wheel: str, pattern: str, mb: int) -> Callable[[Sources], Names | None]:
    def read(sources: Sources) -> Names | None:
        header = sources.file(path, wheel=wheel, mb=mb)
        if header is None:
            return None
        text = header.read_text(encoding="utf-8", errors="replace")
        names = {name: int(value, 0) for name, value in re.findall(pattern, text, re.MULTILINE)}
        # cuDNN 9 keeps some names of version 8 as other names of new codes.
        for name, other in re.findall(r"^\s+(CUDNN_STATUS_\w+) CUDNN_DEPRECATED_ENUM\s*=\s*(\w+)", text, re.MULTILINE):
            names[name] = names[other] if other in names else int(other)
        return names

    return read


_STATUS = r"^\s+({}_\w+)\s*=\s*(0x[0-9A-Fa-f]+|\d+)\b"
runtime = _enum("cuda_runtime/include/driver_types.h", RUNTIME, r"^\s+(cuda(?:Error\w+|Success))\s*=\s*(\d+)", 4)
driver = _enum("cuda_runtime/include/cuda.h", RUNTIME, r"^\s+(CUDA_(?:ERROR_\w+|SUCCESS))\s*=\s*(\d+)", 4)
cudnn8 = _enum("cudnn/include/cudnn_ops_infer.h", "nvidia-cudnn-cu12==8.9.7.29", _STATUS.format("CUDNN_STATUS"), 705)
cudnn9 = _enum("cudnn/include/cudnn_graph.h", "nvidia-cudnn-cu12==9.28.0.42", _STATUS.format("CUDNN_STATUS"), 717)
cublas = _enum("cublas/include/cublas_api.h", "nvidia-cublas-cu12", _STATUS.format("CUBLAS_STATUS"), 581)
cufft = _enum(
    "cufft/include/cufft.h",
    "nvidia-cufft-cu12",
    r"^\s+(CUFFT_(?:SUCCESS|\w+_(?:PLAN|FAILED|TYPE|VALUE|ERROR|SIZE|DATA|LIST|DEVICE|WORKSPACE|IMPLEMENTED|SUPPORTED)))\s*=\s*(\w+)",
    201,
)
curand = _enum("curand/include/curand.h", "nvidia-curand-cu12", _STATUS.format("CURAND_STATUS"), 69)
cusolver = _enum("cusolver/include/cusolver_common.h", "nvidia-cusolver-cu12", _STATUS.format("CUSOLVER_STATUS"), 338)
cusparse = _enum("cusparse/include/cusparse.h", "nvidia-cusparse-cu12", _STATUS.format("CUSPARSE_STATUS"), 367)
nccl = _enum(
    "nccl/include/nccl.h",
    "nvidia-nccl-cu12",
    r"\b(nccl(?:Success|InProgress|Timeout|\w+Error|Invalid\w+))\s*=\s*(\d+)",
    352,
)
nvml = _enum("nvml_dev/include/nvml.h", "nvidia-nvml-dev-cu12", r"^\s+(NVML_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", 1)


def texts(sources: Sources) -> dict[str, str] | None:
    """What ``cudaGetErrorString`` prints for each error of the runtime; the library answers without a GPU."""
    names = runtime(sources)
    path = sources.file("cuda_runtime/lib/libcudart.so.12", wheel=RUNTIME, mb=4)
    if names is None or path is None:
        return None
    library = ctypes.CDLL(str(path))
    library.cudaGetErrorString.restype = ctypes.c_char_p
    return {name: library.cudaGetErrorString(value).decode() for name, value in names.items()}
