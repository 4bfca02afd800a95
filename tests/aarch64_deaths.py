"""What is to be said of the programs of ``capture/linux/aarch64/dies.cpp``, of a live process and of a core alike."""

from __future__ import annotations

ALIKE: tuple[tuple[str, str, list[str] | None, str], ...] = (
    ("null-read", "null-dereference certain", ["read_null", "reads_below", "main", "_start"], "register x0"),
    ("null-write", "null-dereference certain", ["write_null", "main", "_start"], "register x0"),
    ("wild-read", "invalid-read certain", ["read_null", "reads_below", "main", "_start"], "not mapped"),
    ("tagged-read", "invalid-read certain", ["read_null", "reads_below", "main", "_start"], "0x41414141414151"),
    ("in-handler", "null-dereference certain", ["read_null", "invoke", "main", "_start"], "offset of 16"),
    ("memset-null", "null-dereference certain", ["fill", "main", "_start"], "null pointer"),
    ("thread-overflow", "stack-overflow-recursion certain", None, "128 KiB stack of thread"),
    ("large-frame", "stack-overflow-large-frame certain", ["large_frame", "main", "_start"], "1 MiB"),
    ("smash", "stack-smash certain", None, "local arrays"),
    ("smash-unprotected", "bad-jump certain", None, "signature"),
    ("double-free", "double-free certain", ["main", "_start"], "freed already"),
    ("trap", "deliberate-trap certain", ["trap", "main", "_start"], "`__builtin_trap()`"),
    ("ubsan-trap", "deliberate-trap certain", ["ubsan_trap", "main", "_start"], "an index is out of bounds"),
    ("illegal", "deliberate-trap certain", ["main", "_start"], "`udf`"),
    ("null-call", "bad-jump certain", ["call", "main", "_start"], "null pointer"),
    ("data-jump", "bad-jump certain", None, "data"),
    ("unaligned-atomic", "misaligned-access certain", ["add_unaligned", "main", "_start"], "multiple of 8"),
    ("unaligned-exclusive", "misaligned-access certain", ["store_exclusive", "main", "_start"], "`ldxr`"),
    ("pac", "invalid-read certain", ["authenticate", "main", "_start"], "signature of the pointer was wrong"),
    ("bti", "bad-jump certain", ["branch_to_no_target", "main", "_start"], "indirect branches"),
    ("mte", "invalid-read certain", ["read_tagged", "mismatched_tag", "main", "_start"], "tag"),
    ("bus", "bus-error certain", ["main", "_start"], "mapped file"),
)
"""Name, verdict, functions of the program itself (None where they are not checked), and words of the summary."""
