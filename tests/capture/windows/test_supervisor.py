"""The supervisor on Windows: necropsy itself, its wheel and its dependencies in a Windows CPython, under wine.

Where wine is not like Windows, a comment says so. Stacks, rules and dumps have tests of their own; here it is told what
the program feels (nothing), how it ends (as without), and what is seen of it.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wine
from crashers.windows import build

pytestmark = wine.needed


@dataclass(frozen=True)
class Ran:
    """One run under necropsy: its end, and the JSON document."""

    done: wine.Completed
    document: dict[str, Any]

    @property
    def report(self) -> dict[str, Any]:
        """The only report."""
        (one,) = self.document["reports"]
        assert isinstance(one, dict)
        return one

    @property
    def crash(self) -> dict[str, Any]:
        """Its crash."""
        crash = self.report["crash"]
        assert isinstance(crash, dict)
        return crash

    @property
    def crashed(self) -> dict[str, Any]:
        """The thread that crashed."""
        (one,) = (thread for thread in self.crash["threads"] if thread["crashed"])
        assert isinstance(one, dict)
        return one


def environment(**more: str) -> dict[str, str]:
    """With Windows' Python in PATH; no minidump, which takes wine a second, unless it is asked for."""
    return {"WINEPATH": wine.windows_path(wine.python().parent), "NECROPSY_KEEP": "0", **more}


def necropsy(*words: str, env: dict[str, str] | None = None) -> wine.Completed:
    return wine.run(wine.python(), "-m", "necropsy", *words, env=env or environment())


def run(tmp_path: Path, *words: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Ran:
    path = tmp_path / "report.json"
    done = necropsy("run", "--json", wine.windows_path(path), *options, "--", *words, env=env)
    assert path.exists(), done
    return Ran(done, json.loads(path.read_text()))


def python(code: str) -> tuple[str, ...]:
    return ("python", "-c", textwrap.dedent(code))


def crasher(*words: str) -> tuple[str, ...]:
    return (wine.windows_path(build.programs() / "crash.exe"), *words)


def compiled(tmp_path: Path, name: str, text: str, *flags: str) -> str:
    source = tmp_path / f"{name}.c"
    source.write_text(text)
    return wine.windows_path(wine.mingw(source, *flags))


# -- the program ends as it would without us ----------------------------------------------------------------------


EXITS = "#include <stdlib.h>\n#include <windows.h>\nint main(int n, char **w) { ExitProcess(strtoul(w[1], 0, 0)); }"


@pytest.mark.parametrize("code", [0xC0000409, 0xFFFFFFFF])
def test_an_exit_code_is_passed_on_with_all_its_bits(tmp_path: Path, code: int) -> None:
    ran = run(tmp_path, compiled(tmp_path, "exits", EXITS), hex(code))
    assert ran.done.code32 == code
    assert not ran.done.stderr, "a number alone is no news: the program said it itself"
    assert ran.document["processes"][0]["exit"]["code"] == ran.done.signed


def test_so_is_any_other(tmp_path: Path) -> None:
    """Several in one interpreter: to start one takes wine longer than to run the program."""
    codes = [0, 1, 3, 255, 256, 0x7FFFFFFF, 0x80000000, 0xC000013A]
    driver = "import sys; from necropsy.cli import main; print([main(['run', *sys.argv[1:], one]) for one in {!r}])"
    words = ("--", compiled(tmp_path, "exits", EXITS))
    done = wine.run(wine.python(), "-c", driver.format([hex(one) for one in codes]), *words, env=environment())
    assert (done.code32, done.stderr) == (0, "")
    assert [one & 0xFFFFFFFF for one in json.loads(done.stdout)] == codes


def test_what_the_program_reads_and_writes_is_its_own(tmp_path: Path) -> None:
    code = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.stderr.write('said')"
    path = tmp_path / "report.json"
    words = ("-m", "necropsy", "run", "--json", wine.windows_path(path), "--", *python(code))
    done = wine.run(wine.python(), *words, env=environment(), stdin=b"abc" * 100_000)
    assert (done.code32, done.stdout, done.stderr) == (0, "cba" * 100_000, "said")


def test_arguments_arrive_as_they_were_given(tmp_path: Path) -> None:
    words = [
        "two words",
        'a "quote"',
        "back\\slash\\",
        'trailing \\"',
        "",
        "ünïcödé €",
        "*.c",
        "%PATH%",
        "^&|<>",
        "--json",
    ]
    ran = run(tmp_path, *python("import sys; print(ascii(sys.argv[1:]))"), *words)
    assert ran.done.stdout == f"{words!a}\n"
    assert ran.document["processes"][0]["command"][3:] == words


def test_variables_and_folder_are_the_users(tmp_path: Path) -> None:
    code = "import os; print(os.environ['MINE'], os.environ['_NO_DEBUG_HEAP']); print(os.getcwd())"
    path = tmp_path / "report.json"
    words = ("-m", "necropsy", "run", "--json", wine.windows_path(path), "--", *python(code))
    done = wine.run(wine.python(), *words, env=environment(MINE="ö=1"), cwd=tmp_path)
    # _NO_DEBUG_HEAP is the one thing that is added, see docs/how-to/windows.md.
    assert done.stdout.splitlines()[1] == wine.windows_path(tmp_path)
    assert done.stdout.splitlines()[0].endswith("=1 1")


def test_names_of_variables_keep_their_case(tmp_path: Path) -> None:
    done = necropsy("run", "--", "cmd.exe", "/c", "set", env=environment(MixedCase="1"))
    assert done.code32 == 0
    assert "MixedCase=1" in done.stdout.splitlines()


def test_an_exception_that_the_program_handles_is_no_crash(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        *python("""
        import ctypes
        try:
            ctypes.string_at(0)
        except OSError as error:
            print(error)
    """),
    )
    assert (ran.done.code32, ran.done.stderr) == (0, "")
    assert "access violation" in ran.done.stdout
    assert ran.document["reports"] == []


def test_a_handler_of_the_program_has_its_say_first(tmp_path: Path) -> None:
    ran = run(tmp_path, *python("import faulthandler; faulthandler.enable(); faulthandler._read_null()"))
    assert ran.done.code32 == 0xC0000005
    assert ran.done.stderr.count("Windows fatal exception: access violation") == 1
    assert ran.report["verdict"]["rule"] == "null-dereference"


def test_a_command_that_is_not_there() -> None:
    done = necropsy("run", "--", "there-is-no-such-program")
    assert done.code32 == 127
    assert done.stderr.startswith("necropsy: there-is-no-such-program: command not found\n")


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    done = necropsy("run", "--", wine.windows_path(script))
    assert done.code32 == 126
    assert "train.py" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_a_python_that_lies_in_path_is_taken_before_our_own(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = compiled(tmp_path, "other", '#include <stdio.h>\nint main(void) { puts("the other"); return 5; }')
    (tmp_path / "bin" / "python.exe").symlink_to(program.removeprefix("Z:").replace("\\", "/"))
    env = environment(WINEPATH=wine.windows_path(tmp_path / "bin"))
    ran = run(tmp_path, "python", env=env)
    assert (ran.done.code32, ran.done.stdout) == (5, "the other\n")


CTRL_C = '''
import ctypes, subprocess, sys, time
kernel = ctypes.windll.kernel32
kernel.FreeConsole()
assert kernel.AllocConsole(), "wine makes one without a screen"
program = """import time, sys
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(7)
"""
words = [sys.executable, "-m", "necropsy", "run", "--log", sys.argv[1], "--", "python", "-c", program]
child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
assert child.stdout.readline().startswith(b"up")
ours = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint)(lambda event: 1)
kernel.SetConsoleCtrlHandler(ours, 1)
assert kernel.GenerateConsoleCtrlEvent(0, 0)
_, said = child.communicate()
assert b"interrupted" in said, said
print(child.returncode & 0xFFFFFFFF)
'''


@pytest.mark.parametrize("log", ["auto", "pipe"])
def test_the_program_decides_what_ctrl_c_does(log: str) -> None:
    """Ctrl-Break goes the same way; wine's GenerateConsoleCtrlEvent cannot send it to all of a console."""
    done = wine.run(wine.python(), "-c", CTRL_C, log, env=environment())
    assert done.code32 == 0, done.stderr
    assert int(done.stdout) == 7


@pytest.mark.parametrize("log", ["auto", "pipe"])
def test_without_a_supervisor_the_program_runs_on(tmp_path: Path, log: str) -> None:
    """Promise 1: here the supervisor is ended while the program works."""
    up, go, mark = (wine.windows_path(tmp_path / name) for name in ("up", "go", "mark"))
    program = f"""
        import os, sys, time
        open({up!r}, "w").close()
        while not os.path.exists({go!r}): time.sleep(0.05)
        print("its words " * 10000, file=sys.stderr, flush=True)
        open({mark!r}, "w").write("it ran on")
    """
    driver = f"""
        import os, subprocess, sys, time
        def wait_for(path):
            while not os.path.exists(path): time.sleep(0.05)
        words = ["run", "--log", {log!r}, "--", "python", "-c", sys.argv[1]]
        child = subprocess.Popen([sys.executable, "-m", "necropsy", *words], stderr=subprocess.PIPE)
        wait_for({up!r})
        child.kill()
        child.wait()
        open({go!r}, "w").close()
        # To its end: then neither the program nor what passes its words on is there any more.
        print(child.stderr.read().count(b"its words"))
    """
    words = (textwrap.dedent(driver), textwrap.dedent(program))
    done = wine.run(wine.python(), "-c", *words, env=environment())
    assert done.code32 == 0, done.stderr
    assert (tmp_path / "mark").read_text() == "it ran on"
    assert int(done.stdout) == 10000


BROKEN = """
import sys
from necropsy.capture.windows import {module} as broken
from necropsy.cli import main
def fails(*_words, **_names):
    raise RuntimeError("a defect of ours")
{where} = fails
sys.exit(main(["run", "--json", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("module", "where"),
    [
        ("crash_builder", "broken.crash_of"),
        ("live_target", "broken.modules"),
        ("dbghelp", "broken.Symbols.at"),
        ("debug_events", "broken.parse"),
        ("debuggee", "broken.Debuggee.end"),
    ],
)
def test_a_defect_of_ours_costs_the_report_only(tmp_path: Path, module: str, where: str) -> None:
    path = tmp_path / "report.json"
    code = BROKEN.format(module=module, where=where)
    words = (wine.windows_path(path), "--", *crasher("null_read"))
    done = wine.run(wine.python(), "-c", code, *words, env=environment())
    assert done.code32 == 0xC0000005, done.stderr
    assert "Traceback" not in done.stderr
    document = json.loads(path.read_text()) if path.exists() else {"gaps": [], "reports": []}
    gaps = [*document["gaps"], *(gap for report in document["reports"] for gap in report["crash"]["gaps"])]
    assert "a defect of ours" in done.stderr or any("a defect of ours" in gap["why"] for gap in gaps), gaps


# -- what is seen -------------------------------------------------------------------------------------------------


def test_a_death_is_read_where_it_happens(tmp_path: Path) -> None:
    ran = run(tmp_path, *crasher("null_read"))
    assert ran.done.code32 == 0xC0000005
    assert ran.report["verdict"]["rule"] == "null-dereference"
    assert ran.crash["fault"]["address"] == "0x0"
    assert ran.crash["exit"]["ntstatus"]["name"] == "STATUS_ACCESS_VIOLATION"
    assert [frame["function"] for frame in ran.crashed["frames"]][:3] == ["null_read", "crash_now", "main"]
    assert ran.crashed["complete"]
    assert "null_read" in ran.done.stderr
    assert ran.document["subject"]["kind"] == "process"


def test_dbghelp_knows_the_line(tmp_path: Path) -> None:
    frame = run(tmp_path, *crasher("null_read")).crashed["frames"][0]
    source = Path(build.__file__).parent / "pointers.c"
    assert frame["source"].replace("\\", "/").endswith("pointers.c")
    assert "null_read" in "".join(source.read_text().splitlines()[max(0, frame["line"] - 3) : frame["line"]])


@pytest.mark.parametrize(
    ("subcode", "rule"),
    [(0, "stack-smash"), (2, "stack-smash"), (3, "heap-corruption"), (7, "abort"), (10, "fast-fail")],
)
def test_the_subcode_of_a_fast_fail_is_seen(tmp_path: Path, subcode: int, rule: str) -> None:
    ran = run(tmp_path, *crasher("fast_fail", str(subcode)))
    assert ran.done.code32 == 0xC0000409
    assert ran.crash["exit"]["ntstatus"]["fast_fail"]["code"] == subcode
    assert ran.report["verdict"]["rule"] == rule


def test_an_exception_of_the_programs_own_is_news(tmp_path: Path) -> None:
    ran = run(tmp_path, *crasher("raise"))
    assert ran.done.code32 == 0xE0000001
    assert ran.crash["exit"]["ntstatus"]["value"] == "0xE0000001"
    assert "0xE0000001" in ran.done.stderr


def test_a_stack_overflow_is_read_at_the_first_chance(tmp_path: Path) -> None:
    ran = run(tmp_path, *crasher("recursion"))
    # wine ends such a process with 0, Windows with 0xC00000FD: what it is, is passed on.
    assert ran.done.code32 in {0, 0xC00000FD}
    assert ran.crash["exit"]["ntstatus"]["name"] == "STATUS_STACK_OVERFLOW"
    assert ran.report["verdict"]["rule"] == "stack-overflow-recursion"
    assert ran.crashed["frames_total"] > 1000
    assert ran.crashed["stack"]["guard_hit"] is True


def test_a_stack_overflow_that_is_survived_is_none(tmp_path: Path) -> None:
    program = compiled(
        tmp_path,
        "survives",
        """
        #include <windows.h>
        #include <stdio.h>
        static jmp_buf_unused;
        static LONG CALLBACK seen(EXCEPTION_POINTERS *all) {
            if (all->ExceptionRecord->ExceptionCode != 0xC00000FD) return EXCEPTION_CONTINUE_SEARCH;
            return EXCEPTION_CONTINUE_EXECUTION;
        }
        int main(void) {
            AddVectoredExceptionHandler(1, seen);
            RaiseException(0xC00000FD, 0, 0, NULL);
            puts("went on");
            return 0;
        }
        """.replace("static jmp_buf_unused;", ""),
    )
    ran = run(tmp_path, program)
    assert (ran.done.code32, ran.done.stdout, ran.done.stderr) == (0, "went on\n", "")
    assert ran.document["reports"] == []


def test_a_recursion_through_python(tmp_path: Path) -> None:
    """On the main thread: wine ends only the thread that overflows, and another one then waits for the GIL for ever."""
    ran = run(
        tmp_path,
        *python("""
            import sys
            sys.setrecursionlimit(10**9)
            class Deep:
                def __repr__(self): return repr(self)
            repr(Deep())
        """),
    )
    assert ran.report["verdict"]["rule"] == "stack-overflow-recursion"
    assert ran.crashed["stack"]["size"] == 2_000_000 // 4096 * 4096 or ran.crashed["stack"]["size"] >= 1_900_000
    assert any(frame["function"].endswith("__repr__") for frame in ran.crashed["python"])


def test_where_python_stood(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import faulthandler\ndef inner():\n    faulthandler._read_null()\ndef outer():\n    inner()\nouter()\n"
    )
    ran = run(tmp_path, "python", wine.windows_path(script))
    assert [(frame["function"], frame["line"]) for frame in ran.crashed["python"]] == [
        ("inner", 3),
        ("outer", 5),
        ("<module>", 6),
    ]
    assert ran.crash["environment"]["python"] == "3.11.9"
    assert ran.crash["environment"]["executable"].endswith("python.exe")


def test_what_it_tells_a_debugger_is_evidence(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        *python("""
        import ctypes, faulthandler
        ctypes.windll.kernel32.OutputDebugStringA(b"F0000 op.cc:12] Check failed: a == b (1 vs. 2)\\n")
        ctypes.windll.kernel32.OutputDebugStringW("password=hunter2 \\u20ac\\n")
        faulthandler._read_null()
    """),
    )
    assert "Check failed: a == b" in ran.crash["log_tail"]
    assert "\u20ac" in ran.crash["log_tail"]
    assert "hunter2" not in json.dumps(ran.document)
    (message,) = (one for one in ran.crash["messages"] if one["kind"] == "check-failed")
    assert message["where"].startswith("OutputDebugString")


def test_the_end_of_stderr_where_it_is_a_file(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("of an earlier run: Check failed: x\n")
    driver = """
        import subprocess, sys
        with open(sys.argv[1], "ab") as log:
            code = subprocess.call([sys.executable, "-m", "necropsy", "run", "--quiet", "--json", *sys.argv[2:]], stderr=log)
        sys.exit(code - (1 << 32))
    """
    path = tmp_path / "report.json"
    program = python(
        "import sys, faulthandler; print('the last words', file=sys.stderr, flush=True); faulthandler._read_null()"
    )
    words = (wine.windows_path(log), wine.windows_path(path), "--", *program)
    done = wine.run(wine.python(), "-c", textwrap.dedent(driver), *words, env=environment())
    assert done.code32 == 0xC0000005
    crash = json.loads(path.read_text())["reports"][0]["crash"]
    assert crash["log_tail"] == "the last words\n"


def test_a_pipe_in_front_of_stderr_hears_the_last_words(tmp_path: Path) -> None:
    """What stands behind 0xC0000409 with subcode 7: the words of a failed CHECK, which went into a pipe."""
    ran = run(tmp_path, *crasher("check_failed_fast", "3"), options=("--log", "pipe"))
    assert ran.done.code32 == 0xC0000409
    assert "Check failed" in ran.crash["log_tail"]
    assert ran.report["verdict"]["rule"] == "check-failed"
    words, _, told = ran.done.stderr.partition("\nnecropsy: ")
    assert "Check failed" in words, "the program's words come before the report"
    assert told


def test_a_pipe_in_front_of_stderr_changes_no_byte(tmp_path: Path) -> None:
    """Also not where nobody reads for a while, so that it is full, and of what a child says when necropsy has ended."""
    program = """
        import os, subprocess, sys
        for number in range(100, 200):
            os.write(2, bytes([number]) * 9973)
        print(os.isatty(2), flush=True)
        later = "import os, time; time.sleep(3); os.write(2, b'late')"
        subprocess.Popen([sys.executable, "-c", later], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    """
    driver = """
        import subprocess, sys, time
        words = ["run", "--log", "pipe", "--", "python", "-c", sys.argv[1]]
        child = subprocess.Popen([sys.executable, "-m", "necropsy", *words], stderr=subprocess.PIPE)
        time.sleep(2)
        data = child.stderr.read()
        assert child.wait() == 0
        assert data == b"".join(bytes([number]) * 9973 for number in range(100, 200)) + b"late", data[-100:]
        print("all")
    """
    words = (textwrap.dedent(driver), textwrap.dedent(program))
    done = wine.run(wine.python(), "-c", *words, env=environment())
    assert (done.code32, done.stdout) == (0, "False\nall\n"), done


def test_where_the_reader_of_stderr_goes_the_program_learns_of_it(tmp_path: Path) -> None:
    mark = wine.windows_path(tmp_path / "mark")
    program = f"""
        import os, time
        print("up", flush=True)
        try:
            while True:
                os.write(2, b"words " * 1000)
                time.sleep(0.01)
        except OSError:
            open({mark!r}, "w").write("told")
    """
    driver = """
        import subprocess, sys
        words = ["run", "--log", "pipe", "--", "python", "-c", sys.argv[1]]
        child = subprocess.Popen(
            [sys.executable, "-m", "necropsy", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        child.stdout.readline()
        child.stderr.close()
        sys.exit(child.wait())
    """
    words = (textwrap.dedent(driver), textwrap.dedent(program))
    done = wine.run(wine.python(), "-c", *words, env=environment())
    assert done.code32 == 0, done
    assert (tmp_path / "mark").read_text() == "told"


RELAY_LATE = """
import subprocess, sys
from necropsy.capture.windows import stderr_pipe
from necropsy.cli import main
popen = subprocess.Popen
LATE = "import runpy, sys, time; time.sleep(4); del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
def late(words, **more):
    at = words.index("-S") + 1
    return popen([*words[:at], "-c", LATE, *words[at:]], **more)
stderr_pipe.subprocess.Popen = late
sys.exit(main(["run", "--log", "pipe", "--json", *sys.argv[1:]]))
"""


def test_a_relay_that_starts_after_the_program_died_hears_it_too(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = (wine.windows_path(path), "--", *crasher("check_failed_fast", "3"))
    done = wine.run(wine.python(), "-c", RELAY_LATE, *words, env=environment())
    assert done.code32 == 0xC0000409
    (report,) = json.loads(path.read_text())["reports"]
    assert "Check failed" in report["crash"]["log_tail"]
    assert report["verdict"]["rule"] == "check-failed"
    assert "Check failed" in done.stderr.partition("\nnecropsy: ")[0], "the program's words come before the report"


RELAY_ENDED = """
import sys
from pathlib import Path
from necropsy.capture.windows import stderr_pipe
from necropsy.cli import main
start = stderr_pipe.StderrPipe._start
def started(self, name):
    process = start(self, name)
    Path(sys.argv[1]).write_text(str(process.pid))
    return process
stderr_pipe.StderrPipe._start = started
sys.exit(main(["run", "--log", "pipe", *sys.argv[2:]]))
"""


def test_without_the_relay_the_supervisor_passes_on(tmp_path: Path) -> None:
    """Promise 1 again: the process that passes stderr on is ended while the program writes."""
    note = tmp_path / "relay"
    program = f"""
        import ctypes, sys
        sys.stderr.write("before\\n" * 1000)
        sys.stderr.flush()
        kernel = ctypes.windll.kernel32
        relay = kernel.OpenProcess(0x100001, 0, int(open({wine.windows_path(note)!r}).read()))
        assert kernel.TerminateProcess(relay, 9) and kernel.WaitForSingleObject(relay, -1) == 0
        sys.stderr.write("after\\n" * 50000)
    """
    path = tmp_path / "report.json"
    words = ("--json", wine.windows_path(path), "--", *python(program), "exit")
    done = wine.run(wine.python(), "-c", RELAY_ENDED, wine.windows_path(note), *words, env=environment())
    assert done.code32 == 0, done.stderr[-500:]
    assert done.stderr.count("after\n") == 50000
    assert json.loads(path.read_text())["processes"][0]["exit"]["code"] == 0


def test_the_names_of_threads_and_where_their_libraries_come_from(tmp_path: Path) -> None:
    ran = run(tmp_path, *crasher("in_thread"))
    paths = [module["path"] for module in ran.crash["modules"]]
    assert any(path.casefold().endswith("\\ntdll.dll") for path in paths)
    assert all(":\\" in path for path in paths), "whole paths: which of several files of one name it was"


@pytest.mark.parametrize("folder", ["missing", "damaged"])
def test_a_program_that_the_loader_gives_up(tmp_path: Path, folder: str) -> None:
    program = wine.windows_path(build.programs() / folder / "needs.exe")
    bare = wine.run(program)
    ran = run(tmp_path, program)
    assert ran.done.code32 == bare.code32
    if folder == "missing":
        assert ran.done.code32 == 0xC0000135
        (message,) = (one for one in ran.crash["messages"] if one["kind"] == "missing-library")
        assert message["fields"]["library"] == "helper.dll"
        assert ran.report["verdict"]["rule"] == "missing-library"
        assert "helper.dll" in ran.done.stderr


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``outer.pyd``, which imports ``inner.dll``; that lies in the folder ``elsewhere`` beside it."""
    folder = tmp_path_factory.mktemp("lacking")
    (folder / "inner.c").write_text("__declspec(dllexport) int inner(void) { return 1; }")
    (folder / "outer.c").write_text("int inner(void);\n__declspec(dllexport) int outer(void) { return inner(); }")
    (folder / "elsewhere").mkdir()
    shutil.copy(wine.mingw(folder / "inner.c", "-shared"), folder / "elsewhere" / "inner.dll")
    outer = wine.mingw(folder / "outer.c", "-shared", f"-L{folder / 'elsewhere'}", "-l:inner.dll")
    shutil.copy(outer, folder / "outer.pyd")
    return folder


def test_the_dll_that_an_import_lacks_is_named(tmp_path: Path, lacking: Path) -> None:
    """Python says only: DLL load failed while importing outer."""
    path, log = tmp_path / "report.json", tmp_path / "log.txt"
    (lacking / "train.py").write_text("import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport outer")
    program = ("python", wine.windows_path(lacking / "train.py"))
    words = ("python", "-m", "necropsy", "run", "--json", wine.windows_path(path), "--", *program)
    done = wine.run("cmd.exe", "/c", " ".join((*words, f"2>{wine.windows_path(log)}")), env=environment())
    assert done.code32 == 1, done
    (report,) = json.loads(path.read_text())["reports"]
    verdict = report["verdict"]
    assert (verdict["rule"], verdict["confidence"]) == ("missing-library", "certain")
    assert verdict["summary"] == "`outer.pyd` could not be loaded: the DLL `inner.dll` that it needs was not found."
    assert "ImportError: DLL load failed while importing outer" in verdict["evidence"][1]["seen"]
    assert "`outer.pyd` could not be loaded" in log.read_text()


def test_where_the_log_is_not_seen_the_last_load_is_told_as_possible(tmp_path: Path, lacking: Path) -> None:
    """Since 3.8, Python does not look in PATH for what an extension imports."""
    elsewhere = wine.windows_path(lacking / "elsewhere")
    env = environment() | {"WINEPATH": f"{wine.windows_path(wine.python().parent)};{elsewhere}"}
    code = f"import sys; sys.path.insert(0, {wine.windows_path(lacking)!r}); import outer"
    ran = run(tmp_path, "python", "-c", code, env=env)
    assert ran.done.code32 == 1
    assert "ImportError" in ran.done.stderr
    verdict = ran.report["verdict"]
    assert (verdict["rule"], verdict["confidence"]) == ("missing-library", "possible")
    assert verdict["fixes"][0]["command"] == f'os.add_dll_directory(r"{elsewhere}")'


def test_a_load_that_the_program_lives_without_is_no_news(tmp_path: Path, lacking: Path) -> None:
    ran = run(
        tmp_path,
        *python(f"""
            import sys
            sys.path.insert(0, {wine.windows_path(lacking)!r})
            try:
                import outer
            except ImportError:
                print("without it")
            import _ctypes
            sys.exit(3)
        """),
    )
    assert (ran.done.code32, ran.done.stdout, ran.done.stderr) == (3, "without it\n", "")
    assert ran.report["verdict"]["rule"] == "exit-status-only"


def test_a_call_into_a_library_that_was_unloaded(tmp_path: Path) -> None:
    program = compiled(
        tmp_path,
        "calls_what_is_gone",
        """
        #include <windows.h>
        int main(int n, char **w) {
            HMODULE library = LoadLibraryA(w[1]);
            int (*help)(int) = (int (*)(int))GetProcAddress(library, "help");
            FreeLibrary(library);
            return help(1);
        }
        """,
    )
    ran = run(tmp_path, program, wine.windows_path(build.programs() / "whole" / "helper.dll"))
    assert ran.done.code32 == 0xC0000005
    assert ran.report["verdict"]["rule"] == "bad-jump"
    assert "into `helper.dll`, which had been unloaded" in ran.report["verdict"]["summary"]


def test_a_childs_death_is_told(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        *python("""
        import subprocess, sys
        print(hex(subprocess.call([sys.executable, "-c", "import faulthandler; faulthandler._read_null()"])))
    """),
    )
    assert (ran.done.code32, ran.done.stdout) == (0, "0xc0000005\n")
    root, child = ran.document["processes"]
    assert (root["role"], child["parent"]) == ("command", root["pid"])
    assert ran.report["pid"] == child["pid"]
    assert child["command"][1] == "-c"


def test_the_death_behind_a_launcher_is_the_commands_own(tmp_path: Path) -> None:
    """python.exe of a virtual environment starts the real one, waits, and ends as that ends."""
    launcher = compiled(
        tmp_path,
        "launcher",
        """
        #include <windows.h>
        int main(void) {
            STARTUPINFOA start = {sizeof start};
            PROCESS_INFORMATION made;
            DWORD code = 0;
            char *line = GetCommandLineA();
            for (int quoted = 0; *line && (quoted || *line != ' '); line++) if (*line == '"') quoted = !quoted;
            CreateProcessA(NULL, line + 1, NULL, NULL, TRUE, 0, NULL, NULL, &start, &made);
            WaitForSingleObject(made.hProcess, INFINITE);
            GetExitCodeProcess(made.hProcess, &code);
            ExitProcess(code);
        }
        """,
    )
    ran = run(tmp_path, launcher, launcher, *crasher("fast_fail", "2"))
    assert ran.done.code32 == 0xC0000409
    assert [one["role"] for one in ran.document["processes"]] == ["launcher", "launcher", "command"]
    assert ran.report["pid"] == ran.document["processes"][2]["pid"]
    assert ran.report["verdict"]["rule"] == "stack-smash"


def test_children_that_outlive_the_command_run_on(tmp_path: Path) -> None:
    go, mark = tmp_path / "go", tmp_path / "alive"
    until = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.1)\n"
    later = until.format(wine.windows_path(go)) + f"open({wine.windows_path(mark)!r}, 'w')"
    ran = run(
        tmp_path,
        *python(f"""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", {later!r}], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    """),
    )
    assert ran.done.code32 == 0
    go.touch()
    assert wine.run(wine.python(), "-c", until.format(wine.windows_path(mark))).code32 == 0


def test_how_large_the_stack_of_each_thread_is(tmp_path: Path) -> None:
    """wine commits a stack at once, so its peak is not seen there, and of the last thread nothing can be read."""
    code = "import threading; thread = threading.Thread(target=print); thread.start(); thread.join()"
    ran = run(tmp_path, *python(code), options=("--always",))
    second, main = ran.document["processes"][0]["stacks"]
    assert 1_900_000 < second["size"] < 2_100_000
    assert (second["peak"], main["peak"]) == (None, None)
    assert ran.done.code32 == 0
    assert "stack" in ran.done.stderr


# -- options ------------------------------------------------------------------------------------------------------


WHEN_IT_STANDS = """
import os, sys
from necropsy.capture.windows.debugger import Debugger
from necropsy.cli import main
def patience(self):
    if self._until is not None and os.path.exists(sys.argv[1]):
        self._until = 0.0
    return 0.1
Debugger._patience = patience
sys.exit(main(["run", "--timeout", "100000", "--json", *sys.argv[2:]]))
"""
"""The time is up when a file is there: by the clock, it would be a race against the start of two Pythons."""


def test_the_time_limit_ends_all_and_says_where_it_stood(tmp_path: Path) -> None:
    mark, path = wine.windows_path(tmp_path / "mark").replace("\\", "/"), tmp_path / "report.json"
    program = f"""
        import subprocess, sys
        def waits():
            subprocess.call([sys.executable, "-c", "import time; open({mark!r}, 'w').close(); time.sleep(600)"])
        waits()
    """
    words = (mark, wine.windows_path(path), "--", *python(program))
    done = wine.run(wine.python(), "-c", WHEN_IT_STANDS, *words, env=environment())
    ran = Ran(done, json.loads(path.read_text()))
    assert ran.done.code32 == 124
    own = next(one for one in ran.document["reports"] if one["pid"] == ran.document["processes"][0]["pid"])
    assert own["verdict"]["rule"] == "hang"
    assert own["crash"]["exit"]["kind"] == "timeout"
    stacks = [thread["python"] for thread in own["crash"]["threads"] if thread["python"]]
    assert any(frame["function"] == "waits" for stack in stacks for frame in stack)
    assert len(ran.document["processes"]) == 2


@pytest.mark.parametrize("limit", [(), ("--timeout", "600")])
def test_without_a_debugger_only_the_code_is_seen(tmp_path: Path, limit: tuple[str, ...]) -> None:
    ran = run(
        tmp_path,
        *python("import ctypes; print(ctypes.windll.kernel32.IsDebuggerPresent())"),
        options=("--no-debug", *limit),
    )
    assert (ran.done.code32, ran.done.stdout) == (0, "0\n")
    ran = run(tmp_path, *crasher("fast_fail", "2"), options=("--no-debug", *limit))
    assert ran.done.code32 == 0xC0000409
    assert ran.crash["threads"] is None
    assert any("--no-debug" in gap["why"] for gap in ran.document["gaps"])


def test_the_time_limit_without_a_debugger(tmp_path: Path) -> None:
    program = python("import subprocess, sys; subprocess.call([sys.executable, '-c', 'import time; time.sleep(600)'])")
    ran = run(tmp_path, *program, options=("--no-debug", "--timeout", "2"))
    assert ran.done.code32 == 124
    assert ran.document["processes"][0]["exit"]["kind"] == "timeout"


def test_a_report_is_kept_with_a_minidump_that_opens_on_linux(tmp_path: Path) -> None:
    env = environment(NECROPSY_KEEP="5", NECROPSY_OUTPUT=wine.windows_path(tmp_path / "reports"))
    done = necropsy("run", "--", *crasher("fast_fail", "2"), env=env)
    assert done.code32 == 0xC0000409
    assert "Full report: necropsy show " in done.stderr
    assert "stack-smash" in necropsy("list", env=env).stdout
    assert "fast_fail" in necropsy("show", env=env).stdout
    dump = tmp_path / "kept.dmp"
    saved = necropsy("show", "--core", wine.windows_path(dump), env=env)
    assert saved.code32 == 0, saved.stderr
    assert dump.read_bytes()[:4] == b"MDMP"
    assert "WinDbg" in saved.stderr
    opened = necropsy("open", wine.windows_path(dump), env=env)
    assert opened.code32 == 0, opened.stderr
    assert "stack-smash" in opened.stdout


def test_what_is_for_linux_says_so() -> None:
    done = necropsy("attach", "4")
    assert done.code32 == 125
    assert "does not work on win32 yet" in done.stderr
    assert necropsy("confirm").code32 == 125
    done = necropsy("run", "--log", "tap", "--", *python("print('never')"))
    assert (done.code32, done.stdout) == (125, "")
    assert "--log tap is for Linux: on Windows there is --log pipe" in done.stderr


def test_confirm_says_that_it_is_not_for_windows_yet() -> None:
    done = necropsy("run", "--confirm", "--", "python", "-c", "pass")
    assert done.code32 not in {0, 1}
    assert "Windows" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_this_is_imported_on_linux_by_chance() -> None:
    assert sys.platform == "linux"
    from necropsy.capture.windows import debug_events, launch, winapi

    assert debug_events.SIZE == 176
    assert launch.run is not None
    assert winapi.CONTEXT_SIZE == 1232
