"""Names, noise, culprits and numbers: what every rule leans on."""

from __future__ import annotations

import pytest

from necropsy.frame_filter import noise
from necropsy.model import Crash, Culprit, Exit, Frame, PythonPlace
from necropsy.predicates import bare_name, died_by, is_canonical
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.wording import count, short, size, who
from sketch import crash


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("recurse", "recurse"),
        ("void a::B<int>::f<x>(std::string const&) const [clone .isra.0]", "a::B::f"),
        ("(anonymous namespace)::Walk(_object*, bool (*)(_object*))", "(anonymous namespace)::Walk"),
        ("tensorflow::{anonymous}::Walk(int)", "tensorflow::(anonymous namespace)::Walk"),
        ("a::operator<<(std::ostream&, int)", "a::operator<<"),
        ("Box<int>::operator->() const", "Box::operator->"),
        ("Foo::operator()(int) const", "Foo::operator()"),
        ("Node::~Node()", "Node::~Node"),
        ("operator new(unsigned long)", "operator new"),
        ("run::{lambda(int)#1}::operator()(int) const", "run::{lambda}::operator()"),
        ("recurse.constprop.0", "recurse"),
        ("libfoo.so+0x7110", "libfoo.so+0x7110"),
        ("<", "<"),
        ("", ""),
    ],
)
def test_bare_name(function: str, name: str) -> None:
    assert bare_name(function) == name


@pytest.mark.parametrize(
    ("function", "module", "kind"),
    [
        ("abort", "libc.so.6", "abort"),
        ("raise", "/usr/lib/x86_64-linux-gnu/libc.so.6", "abort"),
        ("raise", "op.so", None),
        ("raise", "/opt/app/static-program", "abort"),
        ("strides_of", "op.so", None),
        ("strlen", "libc.so.6", "string"),
        ("__memmove_avx_unaligned_erms", "libc.so.6", "string"),
        ("_IO_default_xsputn", "libc.so.6", "system"),
        ("_PyEval_EvalFrameDefault", "libpython3.11.so.1.0", "interpreter"),
        ("list_repr", "python3.11", "interpreter's own"),
        ("std::vector<int, std::allocator<int> >::at(unsigned long)", "op.so", "cpp-library"),
        ("tsl::internal::LogMessageFatal::~LogMessageFatal()", "libtensorflow_framework.so.2", "logging"),
        ("absl::lts_20250127::log_internal::LogMessage::Die()", "libtensorflow_framework.so.2", "logging"),
        ("BigOp::Compute(tensorflow::OpKernelContext*)", "op.so", None),
    ],
)
def test_noise(function: str, module: str, kind: str | None) -> None:
    assert noise(Frame(index=0, kind="native", function=function, module=module)) == kind


@pytest.mark.parametrize(
    "source",
    [
        "/usr/include/x86_64-linux-gnu/c++/12/bits/c++config.h",
        "/usr/include/c++/12/bits/std_thread.h",
        "/opt/gcc/include/c++/13/thread",
        "/venv/lib/python3.11/site-packages/tensorflow/include/tsl/platform/ctstring_internal.h",
        "/venv/lib/python3.11/site-packages/numpy/_core/include/numpy/ndarraytypes.h",
        "C:\\venv\\Lib\\site-packages\\torch\\include\\c10\\util\\intrusive_ptr.h",
        "/usr/include/eigen3/Eigen/src/Core/DenseCoeffsBase.h",
    ],
)
def test_inline_code_of_libraries_is_noise(source: str) -> None:
    assert noise(Frame(index=0, kind="native", function="__terminate", module="op.so", source=source)) == "cpp-library"


@pytest.mark.parametrize("source", ["/home/u/op/include/ring.h", "/home/u/site-packages/op.cc", "include/ring.h"])
def test_inline_code_of_a_programs_own_headers_is_not(source: str) -> None:
    assert noise(Frame(index=0, kind="native", function="Ring::at", module="op.so", source=source)) is None


def test_culprit_prefers_the_users_own_line() -> None:
    culprit = culprit_of(
        crash("""
            signal SIGSEGV SEGV_MAPERR 0x0 read
            thread 4711 python3 crashed
            frame load(int*) @ ext.so in ext.cc:3 takes 32
            python call /venv/lib/python3.11/site-packages/thing/core.py:9
            python step /home/u/train.py:40
        """)
    )
    assert culprit == Culprit(
        function="load(int*)",
        module="ext.so",
        source="ext.cc",
        line=3,
        python=PythonPlace(function="step", file="/home/u/train.py", line=40),
    )


def test_what_python_frees_through_ctypes_is_freed_by_its_line() -> None:
    stack = """
        signal SIGABRT SI_TKILL
        thread 4711 python3 crashed
        frame abort @ libc.so.6 takes 160
        frame __libc_free @ libc.so.6 takes 32
        frame ffi_call @ libffi.so.8 takes 32
        frame _call_function_pointer @ _ctypes.cpython-311-x86_64-linux-gnu.so takes 32
        frame _PyEval_EvalFrameDefault @ libpython3.11.so.1.0 takes 32
    """
    place = PythonPlace(function="close", file="/home/u/driver.py", line=7)
    by_line = culprit_of(crash(stack + "    python close /home/u/driver.py:7\n"))
    assert by_line == Culprit(python=place)
    assert who(by_line) == "native code called from driver.py:7"
    nobody = culprit_of(crash(stack + "    python none\n"))
    assert nobody is not None
    assert nobody.function == "__libc_free"


def test_pool_thread_gets_the_line_that_waits_for_it() -> None:
    subject = crash("""
        pid 4700
        signal SIGSEGV SEGV_MAPERR 0x0 read
        thread 4701 watcher
        python wait /usr/lib/python3.11/threading.py:320
        python watch /home/u/watch.py:3
        thread 4700 python3
        python quick_execute /venv/lib/python3.11/site-packages/tensorflow/python/eager/execute.py:53
        python step /home/u/train.py:40
        thread 4712 tf_Compute crashed
        frame load(int*) @ ext.so takes 32
        python none
    """)
    culprit = culprit_of(subject)
    assert culprit is not None
    assert culprit.python == PythonPlace(function="step", file="/home/u/train.py", line=40)
    (evidence,) = python_line(subject)
    assert evidence.where == "the main thread waits here for the work that thread 4712 (tf_Compute) does"


PARALLEL = """
    pid 4700
    signal SIGSEGV SEGV_MAPERR 0x562a6aa96fd0 read
    thread 4711 crashed
    frame inner_sum(char*, long) @ libtorch_cpu.so takes 32
    frame invoke_parallel<sum>(long) [clone ._omp_fn.0] @ libtorch_cpu.so takes 32
    frame gomp_thread_start @ libgomp.so.1 takes 32
    python none
    thread 4700 python3
    frame {main} @ libgomp.so.1 takes 32
    frame GOMP_parallel @ libgomp.so.1 takes 32
    frame at::sum(at::Tensor const&) @ libtorch_cpu.so takes 32
    python total /home/u/train.py:3
    thread 4701 loader
    frame {other} @ libtorch_cpu.so takes 32
    frame GOMP_parallel @ libgomp.so.1 takes 32
    python load /home/u/load.py:9
"""
REGION = "invoke_parallel<sum>(long) [clone ._omp_fn.0]"


def test_a_worker_of_openmp_gets_the_line_that_began_its_region() -> None:
    text = PARALLEL.replace("{main} @ libgomp.so.1", f"{REGION} @ libtorch_cpu.so").replace("{other}", "copy")
    (evidence,) = python_line(crash(text))
    assert evidence.seen == "/home/u/train.py:3 in total"
    assert evidence.where == "the main thread began the parallel work that thread 4711 did a part of"


@pytest.mark.parametrize("both", ["gomp_team_barrier_wait_end", REGION])
def test_no_line_where_two_threads_are_in_parallel_regions_alike(both: str) -> None:
    text = PARALLEL.replace("{main} @ libgomp.so.1", f"{both} @ libtorch_cpu.so").replace("{other}", both)
    assert python_line(crash(text)) == ()


def test_no_line_where_nobody_waits() -> None:
    subject = crash("""
        pid 4700
        signal SIGSEGV SEGV_MAPERR 0x0 read
        thread 4700 python3
        python sleep /home/u/train.py:40
        thread 4712 worker crashed
        frame load(int*) @ ext.so takes 32
        python none
    """)
    assert python_line(subject) == ()


def test_only_noise_has_no_culprit() -> None:
    subject = crash("""
        signal SIGABRT SI_TKILL
        thread 4711 python3 crashed
        frame raise @ libc.so.6
        frame abort @ libc.so.6
        frame start_thread @ libc.so.6
    """)
    assert culprit_of(subject) is None


def test_exit_code_of_a_shell_is_a_signal() -> None:
    assert died_by(crash("exit 139"), "SIGSEGV")[0].seen == "exit code 139 = 128 + 11"
    assert died_by(crash("exit 1"), "SIGHUP") == ()
    assert died_by(crash("exit signal SIGSEGV"), "SIGABRT") == ()


def test_a_sentence_in_a_text_is_quoted_as_text() -> None:
    """Nobody who started the process was asked: a log has the sentence, and the evidence says where it stands."""
    (found,) = died_by(Crash(exit=Exit(kind="signaled", signal="SIGBUS", text="Bus error (core dumped)")), "SIGBUS")
    assert (found.seen, found.where) == ("Bus error (core dumped)", "text")


def test_canonical_addresses() -> None:
    assert is_canonical(0x7FFF_FFFF_FFFF)
    assert is_canonical(0xFFFF_8000_0000_0000)
    assert not is_canonical(0x8000_0000_0000)
    assert not is_canonical(0x4141_4141_4141_4141)


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (128.0, "128 bytes"),
        (145.5, "145.5 bytes"),
        (64 << 10, "64 KiB"),
        (8 << 20, "8 MiB"),
        (40_000_048, "38.1 MiB"),
        (2_000_000, "2,000,000 bytes"),
        (3 << 30, "3 GiB"),
        (1023.9 * (1 << 20), "1,020 MiB"),
    ],
)
def test_size(octets: float, text: str) -> None:
    assert size(octets) == text


def test_words() -> None:
    assert count(104857.6) == "104,857"
    assert short("a::f(int)") == "`a::f`"
    assert who(Culprit(python=PythonPlace(file="/home/u/train.py", line=3))) == "native code called from train.py:3"
    assert who(None) == "native code"
