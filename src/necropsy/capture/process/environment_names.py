"""Which environment variables are kept: those that change how native code behaves and hold nobody's secret."""

from __future__ import annotations

import re

_VARIABLES = re.compile(
    r"(?:OMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|VECLIB_|NUMEXPR_)\w+"
    r"|TF_(?:CPP|ENABLE|XLA|GPU|CUDNN|CUDA|NUM|FORCE|DETERMINISTIC|USE|DISABLE|ONEDNN|FP|FP16|F16|SYNC|ALLOW)_\w+"
    r"|TFLITE_\w+|XLA_\w+|JAX_\w+|PYTORCH_\w+|TORCH_\w+"
    r"|CUDA_\w+|CUDNN_\w+|CUBLAS_\w+|NCCL_\w+|NVIDIA_VISIBLE_DEVICES|NVIDIA_TF32_OVERRIDE|MALLOC_\w+|GLIBC_TUNABLES"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|LD_BIND_NOW|(?:A|L|M|T|UB)SAN_OPTIONS|PYTHON(?:FAULTHANDLER|MALLOC|DEVMODE|THREADDEBUG"
    r"|OPTIMIZE|HASHSEED|UNBUFFERED|NOUSERSITE|HOME)|PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION|CONDA_DEFAULT_ENV"
    r"|(?:LOCAL_)?RANK|WORLD_SIZE|SLURM_PROCID|OMPI_COMM_WORLD_RANK|PYTEST_XDIST_WORKER"
)
# Terraform's variables begin with TF_ too, and TF_VAR_* may be anything.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def is_harmless(name: str) -> bool:
    """The variable matters to native code and its value is nobody's secret."""
    return _VARIABLES.fullmatch(name) is not None and not _SECRET.search(name)
