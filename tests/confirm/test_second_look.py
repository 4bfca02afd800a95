"""What a second round of unseen programs was told wrongly: each is a real program that dies, or one made of dice."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from behaving import Program, Seen, report
from confirming import confirmed, script, verdict
from necropsy.confirm import parameter_sweep, stack_sizes, valgrind
from necropsy.confirm.campaign import Campaign, Limits
from necropsy.confirm.stack_sizes import StackStudy
from necropsy.model import Change, Crash, Culprit, Diagnosis, Evidence, Fix, Fold, Frame, Stack, Thread

MIB = 1 << 20
RECURSION = "stack-overflow-recursion"
real = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="this builds what crashes"),
]


def built(place: Path, source: str, name: str = "op.c", compiler: str = "gcc", *flags: str) -> Path:
    (place / name).write_text(source)
    made = place / "op.so"
    subprocess.run([compiler, "-g", "-w", "-shared", "-fPIC", *flags, "-o", str(made), str(place / name)], check=True)
    return made


def fills(needs: int | None, per_level: int = 80, *, then: str | None = None) -> Program:
    """A recursion that takes ``needs`` bytes; ``then``: the rule of what it dies of when it has room for them."""

    def does(change: Change) -> Seen:
        size = change.stack_limit or 8 * MIB
        if needs is not None and size >= needs:
            return Seen("another", rule=then, measures={"size": size, "used": MIB}) if then else Seen("survives")
        measures = {"size": size, "used": size, "depth": size / per_level, "per_level": per_level}
        return Seen("same", rule=RECURSION, measures=measures)

    return Program(does)


def study(*fixes: Fix) -> StackStudy:
    return StackStudy(RECURSION, frozenset(), True, 8 * MIB, fixes)


def test_a_recursion_that_ends_beyond_every_size_is_not_said_to_have_no_end() -> None:
    got = Campaign(fills(3 << 30), [study()], Limits()).conducted(report(RECURSION)).verdict
    assert got is not None
    assert got.status == "confirmed"
    assert got.evidence[-1].seen.endswith("the recursion has no end, or one beyond about 13,421,773 levels")
    assert "If it must go deeper than about 13,421,773 levels, make it a loop" in got.fixes[0].text


def test_a_recursion_through_python_code_has_to_end_there() -> None:
    fold = Fold(
        period=18,
        times=3339,
        functions=("ffi_call", "qsort", "_CallPythonObject"),
        python=(Frame(index=0, kind="python", function="ranked"),),
    )
    full = Stack(size=8 * MIB, used=8 * MIB, is_main=True)
    crash = Crash(threads=(Thread(tid=1, crashed=True, stack=full, folds=(fold,)),))
    one = stack_sizes.study(crash, [RECURSION])
    assert one is not None
    assert one.repeated == "`ranked`"


def test_another_death_behind_a_recursion_that_had_room_at_last_does_not_refute_it() -> None:
    got = Campaign(fills(12 * MIB, then="null-dereference"), [study()], Limits()).conducted(report(RECURSION)).verdict
    assert got is not None
    assert got.status == "inconclusive"
    assert got.experiments[-1].outcome.startswith("dies in another way")
    assert got.experiments[-1].means == "it gets past this, and dies of null-dereference"


def test_a_size_at_which_it_was_stopped_takes_nothing_from_those_that_were_filled() -> None:
    def does(change: Change) -> Seen:
        size = change.stack_limit or 8 * MIB
        if size > 16 * MIB:
            return Seen("hangs", wall_s=40.0)
        return Seen("same", rule=RECURSION, measures={"size": size, "used": size, "depth": size / 80, "per_level": 80})

    got = Campaign(Program(does), [study()], Limits()).conducted(report(RECURSION)).verdict
    assert got is not None
    assert got.status == "confirmed"
    assert got.evidence[-1].seen == "16 MiB are filled too"
    assert not any(fix.verified is not None for fix in got.fixes)


@pytest.mark.parametrize("runs", [8, 9])
def test_a_size_with_which_it_lived_is_a_fix_where_the_runs_end_before_the_best_one(runs: int) -> None:
    program = fills(100 * MIB)
    got = Campaign(program, [study()], Limits(runs=runs)).conducted(report(RECURSION)).verdict
    assert got is not None
    assert program.runs.count(f"stack-{512 * MIB}") == 2
    (fix,) = [fix for fix in got.fixes if fix.verified]
    assert fix.command == f"ulimit -s {512 << 10}"


def test_advice_to_take_a_size_that_was_filled_as_well_did_not_help() -> None:
    small = Fix(text="small", command=f"ulimit -s {16 << 10}")
    thread = Fix(text="thread", command="threading.stack_size(64 << 20)")
    large = Fix(text="large", command=f"ulimit -s {512 << 10}")
    told = report(RECURSION, fixes=(small, thread, large))
    got = Campaign(fills(100 * MIB), [study(small, thread, large)], Limits()).conducted(told).verdict
    assert got is not None
    assert {fix.text: fix.verified for fix in got.fixes if fix.text in {"small", "thread", "large"}} == {
        "small": False,
        "thread": False,
        "large": None,
    }


@pytest.mark.parametrize(("most", "said"), [(1, "100% of"), (2, "full, with 131,072 levels of 64 bytes")])
def test_a_number_of_which_one_is_not_one_level(most: int, said: str) -> None:
    """With ``most`` of them in one level, as inlining makes it."""
    depth = 8 * MIB // 64 * most

    def does(change: Change) -> Seen:
        dies = int(change.arguments.get("N", "300000")) >= depth
        return Seen("same", measures={"size": 8 * MIB, "used": 8 * MIB, "per_level": 64}) if dies else Seen("survives")

    scale = dataclasses.replace(parameter_sweep.scale("N=1..300000"), rule=RECURSION)
    got = Campaign(Program(does), [scale], Limits()).conducted(report(RECURSION)).verdict
    assert got is not None
    assert said in (got.experiments[-1].means or "")


def test_a_run_that_was_stopped_is_told_with_how_long_it_ran() -> None:
    program = Program(lambda change: Seen("hangs", wall_s=41.0) if change != Change() else Seen("same"))
    got = Campaign(program, [study()], Limits()).conducted(report(RECURSION)).verdict
    assert got is not None
    assert got.status == "inconclusive"
    assert got.experiments[-1].outcome == "still ran after 41 s, and was stopped (--timeout gives it longer)"


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
@pytest.mark.parametrize(
    ("freed", "said"),
    [
        ("scan at /src/scan.cc:9", "take one lock around it"),
        ("close at /src/scan.cc:40", "It was freed by close"),
        ("ffi_call in libffi.so.8", "build it with -O0 to see its name"),
    ],
)
def test_who_freed_a_block_decides_the_advice(freed: str, said: str) -> None:
    culprit = Culprit(function="scan", source="/src/scan.cc", line=9)
    told = Diagnosis(
        rule="use-after-free",
        title="t",
        summary="s",
        severity="error",
        confidence="likely",
        evidence=(Evidence(claim="who freed it", seen=freed),),
        fixes=(Fix(text=f"It was freed by {freed}: keep the owner alive until the last use."),),
    )

    def does(change: Change) -> Seen:
        if change.checker is None:
            return Seen("same")
        measures = {"checked": 1.0}
        return Seen("survives", rule="use-after-free", culprit=culprit, measures=measures, seen=told)

    watched = valgrind.Memcheck("invalid-read", valgrind.HEAP)
    got = Campaign(Program(does), [watched], Limits()).conducted(report("invalid-read")).verdict
    assert got is not None
    assert (got.rule, got.status) == ("use-after-free", "confirmed")
    assert said in got.fixes[0].text
    assert not any(fix.verified for fix in got.fixes)


AT_EXIT = """
#include <stdlib.h>
static void (*hook)(int);
static void bye(void) { hook(0); }
void at_end(void (*given)(int)) { hook = given; atexit(bye); }
"""
CALLS = (
    "import ctypes\nkind = ctypes.CFUNCTYPE(None, ctypes.c_int)\nkept = kind(print)\nctypes.CDLL({!r}).at_end(kept)\n"
)


class TestReal:
    pytestmark = real

    def test_python_is_called_after_its_end(self, tmp_path: Path) -> None:
        library = built(tmp_path, AT_EXIT)
        document, text = confirmed(tmp_path, sys.executable, script(tmp_path, CALLS.format(str(library))))
        found = verdict(document)
        assert (found.rule, found.status) == ("python-without-gil", "confirmed")
        assert "after Python itself had ended" in found.summary
        assert "PyGILState_Ensure" not in text, "there is no Python left that could give it"
        (fix,) = [fix for fix in found.fixes if fix.verified]
        assert "os._exit" in (fix.command or "")

    @pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
    def test_a_pointer_into_a_block_is_freed(self, tmp_path: Path) -> None:
        source = (
            "#include <stdlib.h>\nchar *take(void) { char *p = malloc(512); return p + 64; }\n"
            "void give(char *p) { free(p); p[0] = 1; }\nint main(void) { give(take()); return 0; }\n"
        )
        program = tmp_path / "program"  # under valgrind, Python alone takes three seconds to start
        (tmp_path / "op.c").write_text(source)
        flags = ["-g", "-w", "-O1", "-fno-builtin"]
        subprocess.run(["gcc", *flags, "-o", str(program), str(tmp_path / "op.c")], check=True)
        document, _ = confirmed(tmp_path, program)
        found = verdict(document)
        assert (found.rule, found.status) == ("heap-corruption", "confirmed")
        assert found.summary.startswith("What was freed is not the beginning of a block")
        assert [one.seen for one in found.evidence if one.claim == "where the access was"] == [
            "64 bytes inside of a block of 512 bytes"
        ]
        assert not any(fix.verified for fix in found.fixes)

    @pytest.mark.skipif(not shutil.which("g++"), reason="the op is C++")
    def test_where_the_level_of_optimisation_decides_what_is_undefined_is_named(self, tmp_path: Path) -> None:
        source = (
            "static int ramp(float *out, int n) {\n  for (int i = 0; i < n; ++i) out[i] = i;\n}\n"
            'extern "C" int window(float *out) { ramp(out, 100); return 100; }\n'
        )
        library = built(tmp_path, source, "op.cc", "g++", "-O2")
        calls = f"import ctypes\nctypes.CDLL({str(library)!r}).window((ctypes.c_float * 100)())\n"
        options = ("--op-source", str(tmp_path / "op.cc"))
        document, _ = confirmed(tmp_path, sys.executable, script(tmp_path, calls), options=options)
        found = verdict(document)
        (undefined,) = [one for one in found.evidence if one.claim.startswith("its behaviour is undefined")]
        assert undefined.seen.startswith("op.cc:1:")
        assert "without returning a value" in undefined.seen
        assert not any(fix.verified for fix in found.fixes)

    def test_a_check_that_holds_with_one_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = """
            #include <assert.h>
            #include <omp.h>
            void fill(void) {
              int done = 0;
              #pragma omp parallel
              __atomic_fetch_add(&done, 1001 / omp_get_num_threads(), __ATOMIC_SEQ_CST);
              assert(done == 1001);
            }
        """
        library = built(tmp_path, source, "op.c", "gcc", "-O1", "-fopenmp")
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        monkeypatch.setenv("OMP_DYNAMIC", "false")
        calls = f"import ctypes\nctypes.CDLL({str(library)!r}).fill()\n"
        document, _ = confirmed(tmp_path, sys.executable, script(tmp_path, calls))
        found = verdict(document)
        assert (found.rule, found.status) == ("assertion-failed", "inconclusive")
        assert found.experiments[1].means == "what is changed here takes part in the death"
        (fix,) = [fix for fix in found.fixes if fix.verified]
        assert (fix.command or "").startswith("export OMP_NUM_THREADS=1")
