"""Writes a finding of a sanitized build as a pytest file, which builds the source and makes the call in a child."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from necropsy.confirm import address_sanitizer
from necropsy.fuzz import sanitized_build
from necropsy.fuzz.configurations import SANITIZED
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.fuzz.sanitizing_compilers import FAMILIES, SanitizingCompiler, runtimes_of
from necropsy.fuzz.target.functions import VARIABLE
from necropsy.fuzz.test_writer import MARK, Source, arguments_of, function_name, lines_of, quoted, test_name

SOURCES = "NECROPSY_FUZZ_SOURCE"


def text_of(
    op: str, recipe: Recipe, *, headline: str, rule: str, source: Source, place: Path, build: SanitizedBuild
) -> str:
    """The file's text. Its lines are the same for any ``headline`` and ``rule``."""
    imports, top, made = lines_of(source, place, recipe)
    if source.library is not None:
        top, made = [], f'ops = tf.load_op_library(os.environ["{VARIABLE}"])'
    if "np." not in arguments_of(recipe):
        imports = [one for one in imports if one != "import numpy as np"]
    frameworks = [one for one in imports if one.rpartition(" ")[2] in {"np", "tf", "torch"}]
    standard = {one for one in imports if one and one not in frameworks} | _STANDARD
    sources = [os.path.relpath(one, place.parent.resolve()) for one in build.sources]
    is_c = all(one.suffix == ".c" for one in build.sources)
    standards = () if is_c else ("-std=c++17",)
    is_op = source.library is not None
    runtime = sanitized_build.variables("RUNTIME", Path("SUPPRESSIONS"))
    lines = [
        *(f'"""{quoted(headline)}', "", f"{MARK}. {_PASSES}", _HOW, '"""', ""),
        *sorted(standard, key=lambda one: (one.startswith("from"), one)),
        "",
        *top,
        f"SOURCES = {sources!r}  # beside this file",
        f"COMPILERS = {_compilers(build.compiler, is_c=is_c)!r}  # with what their runtimes may be called",
        f"FLAGS = {shlex.join((*standards, *address_sanitizer.FLAGS, '-shared', '-fPIC', '-w'))!r}",
        f"SUPPRESSIONS = {sanitized_build.SUPPRESSIONS!r}",
        "",
        "",
        f"def {function_name(op, SANITIZED)}():",
        *(f"    {one}" for one in frameworks),
        *([""] if frameworks else ()),
        f"    {made}",
        arguments_of(recipe),
        "    try:",
        f"        {recipe.function}(**arguments)",
        "    except Exception as error:",
        "        print(error)  # a proper refusal",
        "",
        "",
        f"def {test_name(op)}():",
        *_TEST.format(
            compilers=" or ".join(_compilers(build.compiler, is_c=is_c)),
            variable=VARIABLE,
            sources=SOURCES,
            rule=rule,
            name=build.library.name,
            framework=_FLAGS_OF_TENSORFLOW if is_op else "    before, after = [], []",
            asan=runtime["ASAN_OPTIONS"],
            ubsan=runtime["UBSAN_OPTIONS"].replace("SUPPRESSIONS", "{suppressions}"),
        ).splitlines(),
        "",
        "",
        'if __name__ == "__main__":',
        f"    {function_name(op, SANITIZED)}()",
    ]
    return "\n".join(lines) + "\n"


def _compilers(own: SanitizingCompiler, *, is_c: bool) -> dict[str, list[str]]:
    """Any of these may build it; the first one was used."""
    used = Path(own.c if is_c else own.cpp).name
    others = (c if is_c else cpp for c, cpp in FAMILIES)
    return {one: runtimes_of(one) for one in dict.fromkeys((used, *others))}


_PASSES = "The test passes once the sanitizers have nothing to report of the call."
_HOW = "The source is built with AddressSanitizer and UBSan, and the call is made in a process of its own."
_STANDARD = {f"import {one}" for one in ("os", "shutil", "subprocess", "sys", "tempfile")}
_STANDARD |= {"from pathlib import Path"}
_FLAGS_OF_TENSORFLOW = """\
    import tensorflow as tf

    before, after = tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()"""
_TEST = """\
    import pytest

    there = [(one, "-print-file-name=" + name) for one in COMPILERS if shutil.which(one) for name in COMPILERS[one]]
    said = [(words[0], subprocess.check_output(words, text=True).strip()) for words in there]
    found = [(one, runtime) for one, runtime in said if os.path.isabs(runtime)]
    if not found:
        pytest.skip("there is no {compilers} with AddressSanitizer to build the source with")
    compiler, runtime = found[0]
{framework}
    given = os.environ.get("{sources}")
    sources = given.split(os.pathsep) if given else [str(Path(__file__).parent / one) for one in SOURCES]
    with tempfile.TemporaryDirectory() as folder:
        library, suppressions = Path(folder, "{name}"), Path(folder, "suppressions")
        suppressions.write_text(SUPPRESSIONS)
        words = [compiler, *FLAGS.split(), *before, "-o", str(library), *sources, *after]
        built = subprocess.run(words, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        variables = {{
            **os.environ,
            "{variable}": str(library),
            "LD_PRELOAD": f"{{runtime}} libstdc++.so.6",
            "ASAN_OPTIONS": "{asan}",
            "UBSAN_OPTIONS": f"{ubsan}",
        }}
        done = subprocess.run([sys.executable, __file__], env=variables, capture_output=True, errors="replace")
    reports = [one for one in done.stderr.splitlines() if "ERROR: AddressSanitizer" in one or "runtime error: " in one]
    if reports:
        pytest.fail(f"{rule}: {{reports[0]}}")
    assert done.returncode == 0, done.stderr
"""
