"""Which feature of an x86 processor an instruction needs, and which features this processor has."""

from __future__ import annotations

from pathlib import Path

BY_GROUP = {
    "avx": ("AVX", "avx"),
    "avx2": ("AVX2", "avx2"),
    "fma": ("FMA", "fma"),
    "fma4": ("FMA4", "fma4"),
    "bmi": ("BMI1", "bmi1"),
    "bmi2": ("BMI2", "bmi2"),
    "xop": ("XOP", "xop"),
    "tbm": ("TBM", "tbm"),
    "aes": ("AES", "aes"),
    "pclmul": ("PCLMUL", "pclmulqdq"),
    "sha": ("SHA", "sha_ni"),
    "adx": ("ADX", "adx"),
    "f16c": ("F16C", "f16c"),
    "ssse3": ("SSSE3", "ssse3"),
    "sse3": ("SSE3", "pni"),
    "sse41": ("SSE4.1", "sse4_1"),
    "sse42": ("SSE4.2", "sse4_2"),
    "sse4a": ("SSE4a", "sse4a"),
    "avx512": ("AVX-512F", "avx512f"),
    "cdi": ("AVX-512CD", "avx512cd"),
    "dqi": ("AVX-512DQ", "avx512dq"),
    "bwi": ("AVX-512BW", "avx512bw"),
    "vlx": ("AVX-512VL", "avx512vl"),
    "eri": ("AVX-512ER", "avx512er"),
    "pfi": ("AVX-512PF", "avx512pf"),
    "rtm": ("RTM", "rtm"),
}
"""Capstone's group, the feature's name, its flag in ``/proc/cpuinfo``. The x86-64 baseline (SSE2) is left out."""
BY_MNEMONIC = {"popcnt": ("POPCNT", "popcnt"), "lzcnt": ("LZCNT", "abm"), "movbe": ("MOVBE", "movbe")}


def processor_flags() -> frozenset[str] | None:
    """The features of this machine's processor, as ``/proc/cpuinfo`` calls them; None where nobody lists them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    line = next((one for one in text.splitlines() if one.startswith("flags")), None)
    return None if line is None else frozenset(line.partition(":")[2].split())
