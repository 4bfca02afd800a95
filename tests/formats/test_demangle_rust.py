from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.process import symbols
from necropsy.formats import demangle_itanium, demangle_rust, log
from necropsy.frame_filter import noise
from necropsy.model import Frame

# From the RFC's own examples, and from a program that rustc made; what they mean was checked with GNU c++filt.
KNOWN = [
    ("_RNvNtCsjrHSEGnQ3l9_3std7process5abort", "std::process::abort"),
    ("_RNvCsfLfy6EI15iL_7___rustc12___rust_abort", "__rustc::__rust_abort"),
    ("_RNvC6_123foo3bar", "123foo::bar"),
    ("_RNCNvCs1234_7mycrate3foo0B3_", "mycrate::foo::{closure}"),
    ("_RINvCs1234_7mycrate3fooReNvB2_3barE", "mycrate::foo"),
    ("_RNvMCs1234_7mycrateNtB2_3Foo3new", "mycrate::Foo::new"),
    ("_RNvXCs1234_7mycrateNtB2_3FooNtB2_3Bar3baz", "mycrate::Foo::baz"),
    ("_RNvMs_Cs1234_7mycrateSl3sum", "mycrate::sum"),
    ("_RNvYhNtCs1234_7mycrate5Trait4call", "mycrate::Trait::call"),
    ("_RINvC1a1fAtj8_KpFUKCRL0_eEuE", "a::f"),
    ("_RINvC1a1fDNtC1b1Tp4ItemhEL_E", "a::f"),
]


@pytest.mark.parametrize(("symbol", "name"), KNOWN)
def test_a_path_as_people_read_it(symbol: str, name: str) -> None:
    assert demangle_rust.readable(symbol) == name
    assert symbols.readable(symbol) == name
    assert demangle_itanium.readable(symbol) == name


@pytest.mark.parametrize(
    "symbol",
    [
        "_R",
        "_Register",
        "_RunMe",
        "_RNvC",
        "_RNvC99x1f",
        "_R1NvC1a1f",
        "_RB_",
        "_RNvB_1f",
        "_RI" + "I" * 500,
        "_RNvC1a1fE"[:6],
        "_RINvC1a1f" + "T" * 5000,
    ],
)
def test_what_is_none_stays_as_it_is(symbol: str) -> None:
    assert demangle_rust.readable(symbol) is None
    assert demangle_itanium.readable(symbol) == symbol


def test_back_references_within_back_references_end() -> None:
    assert demangle_rust.readable("_RINvC1a1f" + "TB7_B7_" * 400 + "E" * 400 + "E") in {None, "a::f"}


@given(st.text("RNvCsMXYIEBTSAKFDGLUp_0123456789abchjlu", max_size=200))
def test_any_symbol_is_read_or_refused(rest: str) -> None:
    name = demangle_rust.readable("_R" + rest)
    assert name is None or len(name) <= 64 * 200


def test_the_hash_of_the_older_mangling_is_left_out() -> None:
    symbol = "_ZN4core9panicking9panic_fmt17h0123456789abcdefE"
    assert symbols.readable(symbol) == "core::panicking::panic_fmt"


@pytest.mark.parametrize(
    ("function", "source", "kind"),
    [
        ("core::panicking::panic_bounds_check", None, "cpp-runtime"),
        ("__rustc::rust_begin_unwind", None, "cpp-runtime"),
        ("core::result::Result::unwrap", None, "cpp-library"),
        ("usize::index", "library/core/src/slice/index.rs", "cpp-library"),
        ("mycrate::pick", "src/main.rs", None),
        ("core::engine::run", "engine.cc", None),
    ],
)
def test_rusts_own_code_is_no_culprit(function: str, source: str | None, kind: str | None) -> None:
    assert noise(Frame(index=0, kind="native", function=function, module="ext.so", source=source)) == kind


def test_a_panic_says_where_and_on_the_next_line_what() -> None:
    text = "thread 'main' panicked at src/main.rs:3:50:\nindex out of bounds: the len is 3 but the index is 9\n"
    (message,) = [one for one in log.scan(text) if one.kind == "last-words"]
    assert message.fields["what"] == "index out of bounds: the len is 3 but the index is 9 (src/main.rs:3:50)"


def test_a_panic_without_words_keeps_its_place() -> None:
    text = "thread 'main' panicked at src/main.rs:3:50:\nnote: run with `RUST_BACKTRACE=1` environment variable\n"
    (message,) = [one for one in log.scan(text) if one.kind == "last-words"]
    assert message.fields["what"].startswith("src/main.rs:3:50")


@pytest.mark.skipif(not (shutil.which("rustc") and shutil.which("nm")), reason="needs rustc and nm")
def test_every_symbol_of_a_real_program_is_read(tmp_path: Path) -> None:
    (tmp_path / "made.rs").write_text('fn main() { println!("{}", std::env::args().count()); }')
    command = ["rustc", "-C", "symbol-mangling-version=v0", "-o", "made", "made.rs"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    listed = subprocess.run(["nm", "made"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    found = [row.split()[-1] for row in listed.stdout.splitlines() if row.split()[-1].startswith("_R")]
    assert found
    assert [symbol for symbol in found if demangle_rust.readable(symbol) is None] == []
