from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.formats.demangle_msvc import type_name

# What Visual C++'s undname prints for these, without ``class`` and ``struct``.
KNOWN = {
    ".?AVruntime_error@std@@": "std::runtime_error",
    ".?AVexception@@": "exception",
    ".?AUFoo@inner@outer@@": "outer::inner::Foo",
    ".?AW4Code@errors@@": "errors::Code",
    ".?AV?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@std@@": "std::string",
    ".?AUFoo@?A0x12ab34cd@ns@@": "ns::(anonymous namespace)::Foo",
    ".?AV?$Error@H@ns@@": "ns::Error<...>",
    ".?AV?$Error@VFoo@a@@PEAH$04@ns@out@@": "out::ns::Error<...>",
    ".?AV?$Error@V?$X@H@b@@@ns@@": "ns::Error<...>",
    ".PEAD": "char*",
    ".PEBD": "char const*",
    ".PEB_W": "wchar_t const*",
    ".PEAVFoo@@": "Foo*",
    ".H": "int",
    ".N": "double",
    "._N": "bool",
}


@pytest.mark.parametrize("decorated", KNOWN)
def test_types_as_people_read_them(decorated: str) -> None:
    assert type_name(decorated) == KNOWN[decorated]


@pytest.mark.parametrize(
    "text", ["", ".", ".?AV", ".?AVfoo", "?AVfoo@@", "foo", ".?AV b@@", ".?AV@@", ".Z", ".?AV" + "x" * 5000 + "@@"]
)
def test_what_is_none_of_them_has_no_name(text: str) -> None:
    assert type_name(text) is None


@settings(deadline=None)
@given(st.text("?$@AVUTW0123456789PEBDHN_xyz.", max_size=200))
def test_rubbish_is_read_or_refused(text: str) -> None:
    found = type_name("." + text)
    assert found is None or len(found) <= len(text) * 16 + 16
