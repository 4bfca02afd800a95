"""Deaths whose cause stands around the program: its libraries, limits, input, processors, the time; real ones."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from confirming import confirmed, necropsy, script, verdict
from necropsy import serialize
from necropsy.model import Diagnosis, Experiment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="this builds what crashes"),
]


def built(place: Path, name: str, source: str, *flags: str) -> Path:
    (place / f"{name}.c").write_text(source)
    made = place / f"lib{name}.so"
    command = ["gcc", "-g", "-O1", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", str(made), str(place / f"{name}.c")]
    subprocess.run([*command, *flags], check=True)
    return made


def row(diagnosis: Diagnosis, name: str) -> Experiment:
    return next(one for one in diagnosis.experiments if one.name == name)


SETTINGS = "struct settings { long version; %s int *table; };\nstatic int table[4] = {1, 2, 3, 4};\n"
SETTINGS += "static struct settings mine = {.table = table};\nstruct settings *settings(void) { return &mine; }\n"
USES = "struct settings { long version; int *table; };\nstruct settings *settings(void);\n"
USES += "int use(void) { return settings()->table[2]; }\n"


def test_a_library_of_another_version_in_front_of_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir()
    wrong.mkdir()
    built(right, "settings", SETTINGS % "")
    built(wrong, "settings", SETTINGS % "long reserved;")
    flags = ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{right}", f"-L{right}", "-lsettings"]
    user = built(tmp_path, "user", USES, *flags)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(wrong))
    document, text = confirmed(tmp_path, sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(user)!r}).use()")
    found = verdict(document)
    assert (found.rule, found.status) == ("conflicting-libraries", "confirmed")
    assert [fix.command for fix in found.fixes if fix.verified] == ["unset LD_LIBRARY_PATH LD_PRELOAD"]
    assert "libsettings.so" in row(found, "no-library-path").change
    (rival,) = document.reports[0].alternatives
    assert (rival.rule, rival.status) == ("null-dereference", "refuted")
    assert "Ruled out by experiment" in text


REFUSED = "#include <stdlib.h>\n"
REFUSED += "long take(long mib) { volatile char *block = malloc(mib << 20); block[0] = 1; return block[5]; }\n"
TAKE = "import ctypes\nctypes.CDLL({!r}).take(ctypes.c_long(2200))\n"


def test_memory_that_was_refused_and_not_asked_for(tmp_path: Path) -> None:
    library = built(tmp_path, "take", REFUSED)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2048 << 20, before[1]))
    try:
        document, _ = confirmed(tmp_path, sys.executable, script(tmp_path, TAKE.format(str(library))))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    found = verdict(document)
    assert (found.rule, found.status) == ("allocation-failed", "confirmed")
    (fix,) = [fix for fix in found.fixes if fix.verified]
    assert (fix.command or "").startswith("ulimit -v ")
    assert {one.rule: one.status for one in document.reports[0].alternatives} == {"null-dereference": "refuted"}


def may_raise() -> bool:
    """Whether this user may raise a hard limit (CAP_SYS_RESOURCE), tried on a process of its own."""
    code = "import resource as r\nr.setrlimit(r.RLIMIT_CORE, (0, 0))\nr.setrlimit(r.RLIMIT_CORE, (1, 1))"
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


# Who may raise it has the limit lifted, as the tests above have it: nothing is refused that could be seen.
@pytest.mark.skipif(may_raise(), reason="this user may raise a hard limit")
def test_a_limit_that_cannot_be_lifted_is_seen_to_be_met(tmp_path: Path) -> None:
    library = built(tmp_path, "take", REFUSED)
    hard = "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_AS, (2048 << 20, 2048 << 20))\n"
    hard += "os.execv(sys.executable, [sys.executable, '-m', 'necropsy', *sys.argv[1:]])\n"
    (tmp_path / "hard.py").write_text(hard)
    words = ["run", "--confirm", "--yes", "--json", "c.json", "--", sys.executable]
    program = script(tmp_path, TAKE.format(str(library)))
    command = [sys.executable, str(tmp_path / "hard.py"), *words, str(program)]
    own = {"NECROPSY_OUTPUT": str(tmp_path / "reports")}
    subprocess.run(command, check=False, cwd=tmp_path, env=os.environ | own, capture_output=True, timeout=600)
    found = verdict(serialize.loads((tmp_path / "c.json").read_bytes()))
    assert (found.rule, found.status) == ("null-dereference", "inconclusive")
    assert row(found, "refused-memory").outcome == "malloc refused a request for 2,200 MiB, before it died"
    assert "2,048 MiB of address space are allowed" in found.evidence[-1].seen
    assert not any(fix.verified for fix in found.fixes)


def test_a_limit_that_the_program_sets_itself_is_lifted_as_it_sets_it(tmp_path: Path) -> None:
    library = built(tmp_path, "take", REFUSED)
    own = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
    document, _ = confirmed(tmp_path, sys.executable, script(tmp_path, own + TAKE.format(str(library))))
    found = verdict(document)
    assert (found.rule, found.status) == ("allocation-failed", "confirmed")
    (fix,) = [fix for fix in found.fixes if fix.verified]
    assert "limits its address space to 700 MiB" in fix.text
    assert {one.rule: one.status for one in document.reports[0].alternatives} == {"null-dereference": "refuted"}


DIES = "import ctypes\nctypes.string_at(0)\n"


def test_a_crash_that_goes_by_itself_is_not_gone_because_of_a_change(tmp_path: Path) -> None:
    counted = (
        "import pathlib, sys\nfile = pathlib.Path(__file__).with_name('left')\nleft = int(file.read_text())\n"
        "file.write_text(str(left - 1))\nif left <= 0: sys.exit()\n"
    )
    (tmp_path / "left").write_text("4")  # the first run and three of the unchanged program
    document, text = confirmed(tmp_path, sys.executable, script(tmp_path, counted + DIES))
    found = verdict(document)
    assert (found.rule, found.status) == ("null-dereference", "inconclusive")
    assert not any(fix.verified for fix in found.fixes)
    assert not document.reports[0].alternatives
    assert (row(found, "unchanged").crashed, row(found, "unchanged-again").crashed) == (3, 0)
    assert "the crash has gone by itself" in " ".join(text.split())


def test_a_crash_that_never_comes_again_is_told_with_what_that_says_of_its_chance(tmp_path: Path) -> None:
    once = "import pathlib, sys\nfile = pathlib.Path(__file__).with_name('was')\n"
    once += "if file.exists(): sys.exit()\nfile.touch()\n"
    document, text = confirmed(tmp_path, sys.executable, script(tmp_path, once + DIES), options=("--runs", "5"))
    found = verdict(document)
    assert (found.status, found.experiments[0].runs, found.experiments[0].crashed) == ("inconclusive", 5, 0)
    assert "the crash did not come again" in " ".join(text.split())


def test_each_run_reads_its_input_from_the_beginning(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys\nif 'boom' not in sys.stdin.read(): sys.exit()\n" + DIES)
    (tmp_path / "input.txt").write_text("words\nboom\n")
    words = ["-m", "necropsy", "run", "--confirm", "--yes", "--runs", "3", "--json", "c.json", "--"]
    for command in (f"{sys.executable} {program} < input.txt", f"cat input.txt | {sys.executable} {program}"):
        shell = command.replace(sys.executable, " ".join([sys.executable, *words, sys.executable]))
        done = subprocess.run(
            ["/bin/sh", "-c", shell],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
            cwd=tmp_path,
            env=os.environ | {"NECROPSY_OUTPUT": str(tmp_path / ("pipe" if "|" in command else "file"))},
        )
        (unchanged, *_) = verdict(serialize.loads((tmp_path / "c.json").read_bytes())).experiments
        assert unchanged.crashed == (0 if "|" in command else 3), done.stderr
        assert ("each run had an empty input" in done.stderr) == ("|" in command)


def test_the_words_of_which_the_first_lives(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys\nif sys.argv[1] not in ('moe', 'both'): sys.exit()\n" + DIES)
    vary = ("--vary", "MODE=dense,moe,both")
    document, text = confirmed(tmp_path, sys.executable, program, "{MODE}", options=vary)
    died = {one.change: one.crashed for one in verdict(document).experiments if one.name.startswith("MODE=")}
    assert {name: bool(crashed) for name, crashed in died.items()} == {
        "MODE=dense": False,
        "MODE=moe": True,
        "MODE=both": True,
    }
    assert "it lived; now with MODE=moe" in text
    said = {one.claim: one.seen for one in verdict(document).evidence}
    assert said["with which values of MODE it dies"] == "dies with moe, both; lives with dense"
    done = necropsy("run", "--confirm", *vary, "--", sys.executable, program, "{MODE}", cwd=tmp_path)
    assert done.returncode == 0
    assert "put a value that crashes first" in done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor anyway")
@pytest.mark.skipif(not shutil.which("taskset"), reason="taskset is not installed")
def test_threads_that_no_variable_reaches(tmp_path: Path) -> None:
    """Each of as many threads as there are processors wants a slot; only the first one has been made."""
    program = (
        "import ctypes, os, threading\nslots = [ctypes.create_string_buffer(b'first'), ctypes.c_void_p(0)]\n"
        "count = min(2, len(os.sched_getaffinity(0)))\nwait = threading.Barrier(count)\n"
        "def work(number):\n    wait.wait()\n    ctypes.string_at(ctypes.cast(slots[number], ctypes.c_void_p))\n"
        "threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]\n"
        "[one.start() for one in threads]\n[one.join() for one in threads]\n"
    )
    document, text = confirmed(tmp_path, sys.executable, script(tmp_path, program))
    found = verdict(document)
    assert (found.rule, found.status) == ("data-race", "confirmed")
    assert row(found, "one-processor").crashed == 0
    assert "It takes more than one thread for this death" in " ".join(text.split())
    assert [fix.command for fix in found.fixes if fix.verified] == ["taskset -c 0 COMMAND"]
