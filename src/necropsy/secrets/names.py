"""Which names say that their value is a secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from necropsy.data import table
from necropsy.lazy_re import regex

Verdict = Literal["yes", "unsure", "path", "no"]
"""Is a name's value a secret? ``unsure``: if it looks like one; ``path``: if it is not a path."""
LONGEST = 96
"""Characters at a name's end to examine."""

_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(maxsize=1)
def known() -> dict[str, frozenset[str]]:
    """The lists of words of the table, by their names."""
    return {name: frozenset(words) for name, words in table("secrets.toml")["names"].items()}


@lru_cache(maxsize=1)
def _endings() -> tuple[str, ...]:
    return tuple(known()["ends"])


def _ends(word: str) -> bool:
    """Joined words: ``pgpassword``, ``accesstoken``, ``dbpass``."""
    return word.endswith(_endings()) or (word[-4:] == "pass" and word[:-4] in known()["pass_of"])


@lru_cache(maxsize=4096)
def verdict_on(name: str) -> Verdict:
    """Whether a variable, an option, a header or a field of this name holds a secret."""
    of = known()
    bare = name.lstrip("-")[-LONGEST:]
    low = bare.lower()
    if low in of["whole"] or low in of["headers"]:
        return "yes"
    if low in of["paths"]:
        return "path"
    words = [word.lower() for word in _WORD.findall(bare)]
    while words and words[-1].isdigit():
        words.pop()
    if not words:
        return "no"
    capitals = bare.upper() == bare and len(words) > 1
    if capitals and any(word.startswith("pass") for word in words[1:]):
        return "yes"
    return _by_last_word(words, capitals=capitals, option=name.startswith("-")) or _by_any_word(
        words, capitals=capitals
    )


def _by_last_word(words: Sequence[str], *, capitals: bool, option: bool) -> Verdict | None:
    of = known()
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in of["always"] or (last in of["last"] and last != "token"):
        return "yes"
    if last == "token":
        return "unsure" if before in of["plain_token"] and not capitals else "yes"
    if last == "tokens":
        return "yes" if before in of["key_of"] | {"refresh", "bearer", "session"} else "unsure"
    if last in {"key", "keys"}:
        return "yes" if before and (capitals or before in of["key_of"]) else "unsure"
    if last == "pass":
        return "yes" if option or (before and (capitals or before in of["pass_of"])) else "unsure"
    if last in of["unsure"]:
        return "yes" if last == "auth" and capitals else "unsure"
    return "yes" if _ends(last) else None


def _by_any_word(words: Sequence[str], *, capitals: bool) -> Verdict:
    of = known()
    if words[-1] in of["about"]:
        return "no"
    if any(word in of["always"] or _ends(word) for word in words):
        return "yes" if any(word in of["always"] for word in words) or capitals else "unsure"
    pairs = pairwise(words)
    return "yes" if any(two == "key" and one in of["key_of"] for one, two in pairs) else "no"


_VARIABLES = regex(
    r"(?:OMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|VECLIB_|NUMEXPR_)\w+"
    r"|TF_(?:CPP|ENABLE|XLA|GPU|CUDNN|CUDA|NUM|FORCE|DETERMINISTIC|USE|DISABLE|ONEDNN|FP|FP16|F16|SYNC|ALLOW)_\w+"
    r"|TFLITE_\w+|XLA_\w+|JAX_\w+|PYTORCH_\w+|TORCH_\w+"
    r"|CUDA_\w+|CUDNN_\w+|CUBLAS_\w+|NCCL_\w+|NVIDIA_VISIBLE_DEVICES|NVIDIA_TF32_OVERRIDE|MALLOC_\w+|GLIBC_TUNABLES"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|LD_BIND_NOW|(?:A|L|M|T|UB)SAN_OPTIONS|PYTHON(?:FAULTHANDLER|MALLOC|DEVMODE|THREADDEBUG"
    r"|OPTIMIZE|HASHSEED|UNBUFFERED|NOUSERSITE|HOME)|PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION|CONDA_DEFAULT_ENV"
    r"|(?:LOCAL_)?RANK|WORLD_SIZE|SLURM_PROCID|OMPI_COMM_WORLD_RANK|PYTEST_XDIST_WORKER"
)
# Terraform's variables begin with TF_ too, and TF_VAR_* may be anything.
_SECRET = regex(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def is_harmless(name: str) -> bool:
    """The variable matters to native code and its value is nobody's secret."""
    return _VARIABLES.fullmatch(name) is not None and not _SECRET.search(name)
