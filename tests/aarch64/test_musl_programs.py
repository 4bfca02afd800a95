"""Programs that are linked with musl die on AArch64, static and dynamic: what is said of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import machine_image
import pytest
import supervision
from supervision import Case, Found

from debian_packages import apt_options

_TESTS = Path(__file__).parents[1]
_LOADER = "/usr/lib/ld-musl-aarch64.so.1"
_KINDS = {"static": ["-static"], "dynamic": []}
DEATHS = (
    ("null", "null-dereference certain", "register x0"),
    ("abort", "abort certain", "`give_up` ended the program by abort()"),
    ("thread", "stack-overflow-recursion certain", "`dig` called itself"),
    ("smash", "stack-smash certain", "`overrun` wrote past the end of one of its local arrays"),
    ("corrupt", "heap-corruption certain", "musl's malloc found its bookkeeping destroyed"),
    ("free-twice", "heap-corruption certain", "or a block was freed twice"),
    ("halt", "illegal-instruction likely", "`main`"),
)


def _musl(image: Path) -> Path:
    """Debian's musl for arm64, unpacked; gcc's specs in it lead to where it is."""
    root = image / "musl/root"
    specs = root / "usr/lib/aarch64-linux-musl/musl-gcc.specs"
    if not specs.exists():
        options = apt_options(image / "musl", "bookworm")
        subprocess.run(["apt-get", "-q", *options, "update"], check=True)
        subprocess.run(["apt-get", "-q", *options, "download", "musl", "musl-dev"], check=True, cwd=image / "musl")
        for package in (image / "musl").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    (image / "musl/specs").write_text(specs.read_text().replace("/usr/", f"{root}/usr/"))
    return image / "musl"


def _source(folder: Path) -> Path:
    """The program of the ordinary suite's test, with AArch64's instruction instead of x86-64's."""
    text = (_TESTS / "capture/linux/test_musl.py").read_text()
    program = text.partition('SOURCE = r"""')[2].partition('"""')[0]
    made = folder / "dies.c"
    made.write_text(program.replace('"hlt"', '"hlt #0"'))
    return made


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    machine = supervision.machine()
    musl = _musl(machine_image.made())
    folder = tmp_path_factory.mktemp("musl")
    source = _source(folder)
    for kind, flags in _KINDS.items():
        words = [
            "aarch64-linux-gnu-gcc",
            "-specs",
            str(musl / "specs"),
            "-g",
            "-O1",
            "-fno-optimize-sibling-calls",
            "-fstack-protector-strong",
            "-w",
        ]
        subprocess.run([*words, *flags, "-o", str(folder / kind), str(source)], check=True)
    libc = next((musl / "root").glob("**/libc.so")).read_bytes()
    machine.put({_LOADER: libc, **{f"/opt/musl/{kind}": (folder / kind).read_bytes() for kind in _KINDS}})
    cases = [
        Case(f"{kind} {how}", [f"/opt/musl/{kind}", how], options={"log": "tap"})
        for how, *_ in DEATHS
        for kind in _KINDS
    ]
    return supervision.run(cases)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(("how", "verdict", "says"), DEATHS)
def test_a_program_of_musl_that_dies(found: dict[str, Found], kind: str, how: str, verdict: str, says: str) -> None:
    report = found[f"{kind} {how}"].report
    assert report.verdict is not None
    assert f"{report.verdict.rule} {report.verdict.confidence}" == verdict
    assert says in report.verdict.summary
    evidence = " ".join(f"{one.claim} {one.seen}" for one in report.verdict.evidence)
    assert how != "thread" or "musl" in evidence
