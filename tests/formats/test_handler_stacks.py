"""Stacks that programs print of themselves when they die: glog, absl, folly, Open MPI, UCX, glibc, c10, Paddle and others.

Texts without a link were printed by the real tool on this project's testbed; the others are public threads, shortened.
"""

from __future__ import annotations

import pytest
from printed import printed

from necropsy.formats.readers import glibc_stacks, jvm, printed_stacks
from necropsy.formats.text_reports import TextReader
from necropsy.model import Crash, Frame
from reading import death, only, pieces, verdict

GLOG = printed("glog")


def printers(kind: str) -> list[TextReader]:
    return [one for one in (*printed_stacks.READERS, *glibc_stacks.READERS) if one.kind == kind]


def frames(crash: Crash) -> tuple[Frame, ...]:
    (thread,) = crash.threads or ()
    return thread.frames or ()


def names(crash: Crash) -> list[str | None]:
    return [frame.function for frame in frames(crash)]


def fault(crash: Crash) -> tuple[object, ...]:
    assert crash.fault is not None and crash.fault.handled_first
    return crash.fault.signal, crash.fault.code, crash.fault.address


# ---------------------------------------------------------------- glog, absl, folly


def test_glog() -> None:
    crash = only(GLOG["null"], *printers("glog"))
    assert fault(crash) == ("SIGSEGV", None, 0x10)
    assert crash.pid == 4114
    assert crash.at == "2026-11-21T14:41:34+00:00"
    assert names(crash) == [None, "op::Run()", "main", None, "__libc_start_main", "_start"]
    found = verdict(GLOG["null"], *printers("glog"))
    assert found.rule == "null-dereference"


def test_glog_abort_is_the_programs_own() -> None:
    crash = only(GLOG["abort"], *printers("glog"))
    assert fault(crash) == ("SIGABRT", None, None)
    assert crash.fault is not None and crash.fault.sent_by_itself is True


def test_glog_failed_check() -> None:
    found = verdict(GLOG["check"], *printers("glog"))
    assert found.rule == "check-failed"
    assert found.culprit is not None and found.culprit.function == "op::Check()"


def test_glog_mangled_name_and_allocation() -> None:
    """From https://github.com/weiliu89/caffe/issues/689."""
    text = """terminate called after throwing an instance of 'std::bad_alloc'
  what():  std::bad_alloc
*** Aborted at 1501135804 (unix time) try "date -d @1501135804" if you are using GNU date ***
PC: @     0x7f31cadd5428 gsignal
*** SIGABRT (@0x30) received by PID 48 (TID 0x7f317b7fe700) from PID 48; stack trace: ***
    @     0x7f31cadd54b0 (unknown)
    @     0x7f31cadd5428 gsignal
    @     0x7f31cadd702a abort
    @     0x7f31cb40c919 __cxa_throw
    @     0x7f31cc5743bb _ZN5caffe2db10LMDBCursor5valueB5cxx11Ev
    @                0x0 (unknown)
"""
    crash = only(text, *printers("glog"))
    assert names(crash) == ["gsignal", "abort", "__cxa_throw", "caffe::db::LMDBCursor::value"]
    assert verdict(text, *printers("glog")).rule == "allocation-failed"


def test_absl_names_the_faulting_function_at_the_counter() -> None:
    """From https://github.com/secretflow/secretflow/issues/887."""
    text = """(SPURuntime pid=1625248) *** SIGSEGV received at time=1695013707 on cpu 99 ***
(SPURuntime pid=1625248) PC: @     0x7fd011069d5e  (unknown)  yacl::link::Context::NextId()
(SPURuntime pid=1625248)     @     0x7ffff7f99420  (unknown)  (unknown)
(SPURuntime pid=1625248)     @     0x7fd011065e06        288  yacl::link::AllGatherImpl<>()
(SPURuntime pid=1625248)     @     0x7fd011066463         64  yacl::link::AllGather()
(SPURuntime pid=1625248)     @ ... and at least 7 more frames
"""
    crash = only(text, *printers("glog"))
    assert names(crash) == ["yacl::link::Context::NextId()", "yacl::link::AllGatherImpl<>()", "yacl::link::AllGather()"]
    assert frames(crash)[1].stack_bytes == 288
    (thread,) = crash.threads or ()
    assert (thread.complete, thread.frames_total) == (False, None)


def test_folly() -> None:
    """Format of folly/debugging/symbolizer/SignalHandler.cpp."""
    text = """*** Aborted at 1612000000 (Unix time, try 'date -d @1612000000') ***
*** Signal 11 (SIGSEGV) (0x18) received by PID 4711 (pthread TID 0x7f1) (linux TID 4715) (code: address not mapped to object), stack trace: ***
    @ 00000000000a1b2c folly::symbolizer::(anonymous namespace)::signalHandler(int, siginfo_t*, void*)
    @ 000000000003ea8f (unknown)
    @ 00000000000b2c3d op::Load(int*)
"""
    crash = only(text, *printers("glog"))
    assert fault(crash) == ("SIGSEGV", "SEGV_MAPERR", 0x18)
    (thread,) = crash.threads or ()
    assert thread.tid == 4715
    assert names(crash)[-1] == "op::Load(int*)"


def test_a_signal_from_another_process_has_no_address() -> None:
    text = "*** SIGTERM (@0x3e800001267) received by PID 99 (TID 0x7f) from PID 4711; stack trace: ***"
    crash = only(text, *printers("glog"))
    assert crash.fault is not None and crash.fault.address is None
    assert crash.fault.sender == 4711


# ---------------------------------------------------------------- Open MPI and UCX

OPEN_MPI = """[host:03983] *** Process received signal ***
[host:03983] Signal: Bus error (7)
[host:03983] Signal code: Non-existant physical address (2)
[host:03983] Failing at address: 0x7f04ac0ce000
[other:00001] Signal: Aborted (6)
[host:03983] [ 0] /lib64/libc.so.6(+0x3e990)[0x7f04b5c5a990]
[host:03983] [ 1] /lib64/libc.so.6(+0x16f8ba)[0x7f04b5d8b8ba]
[host:03983] [ 2] /lib64/libfabric.so.1(+0x625500)[0x7f04af005500]
[host:03983] [ 3] /usr/lib64/openmpi/lib/libopen-pal.so.40(mca_btl_base_select+0x126)[0x7f04b40e19f6]
[host:03983] *** End of error message ***
"""


def test_open_mpi() -> None:
    """From https://github.com/ofiwg/libfabric/issues/9422."""
    crash = only(OPEN_MPI, *printers("open-mpi"))
    assert fault(crash) == ("SIGBUS", "BUS_ADRERR", 0x7F04AC0CE000)
    assert crash.pid == 3983
    assert [(one.function, one.module and one.module.rsplit("/", 1)[-1]) for one in frames(crash)] == [
        (None, "libc.so.6"),
        (None, "libfabric.so.1"),
        ("mca_btl_base_select", "libopen-pal.so.40"),
    ]
    found = verdict(OPEN_MPI, *printers("open-mpi"))
    assert found.rule == "bus-error"
    assert found.culprit is not None and (found.culprit.function, found.culprit.module) == (None, "libfabric.so.1")


def test_open_mpi_null_pointer() -> None:
    """From https://github.com/horovod/horovod/issues/1197."""
    text = """[w:16611] *** Process received signal ***
[w:16611] Signal: Segmentation fault (11)
[w:16611] Signal code: Address not mapped (1)
[w:16611] Failing at address: 0x12
[w:16611] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3ef20)[0x15222b72ef20]
[w:16611] [ 1] /usr/lib/solver_core.so(_ZN6cpp2py12py_converterIN5triqs9operators26many_body_operator_genericIdEEE14is_convertibleEP7_objectb+0x9d)[0x1521fb35705d]
[w:16611] [ 2] python(PyObject_Call+0x3e)[0x55ab89932e9e]
[w:16611] *** End of error message ***
"""
    found = verdict(text, *printers("open-mpi"))
    assert found.rule == "null-dereference"
    assert found.culprit is not None and found.culprit.function == "cpp2py::py_converter::is_convertible"


def test_ucx() -> None:
    """From https://github.com/InternLM/lmdeploy/issues/1849."""
    text = """[46033e227edb:1063 :0:1192] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x2058)
[WARNING] gemm_config.in is not found; using default GEMM algo
==== backtrace (tid:   1192) ====
 0 0x0000000000043090 killpg()  ???:0
 1 0x00000000000a017f cublasSetStream_v2()  ???:0
 2 0x00000000000dccbe LlamaTritonModel<__half>::createSharedModelInstance()  /opt/turbomind/LlamaTritonModel.cc:292
=================================
"""
    crash = only(text, *printers("open-mpi"))
    assert fault(crash) == ("SIGSEGV", "SEGV_MAPERR", 0x2058)
    assert (crash.pid, (crash.threads or ())[0].tid) == (1063, 1192)
    assert names(crash) == ["cublasSetStream_v2", "LlamaTritonModel<__half>::createSharedModelInstance"]
    assert verdict(text, *printers("open-mpi")).rule == "null-dereference"


# ---------------------------------------------------------------- glibc


def test_glibc_before_2_26() -> None:
    """From https://github.com/fhs/pyhdf/issues/5."""
    text = """*** stack smashing detected ***: /home/user/venv/bin/python3.4 terminated
======= Backtrace: =========
/lib64/libc.so.6(__fortify_fail+0x37)[0x348b302697]
/home/user/venv/lib/python3.4/site-packages/pyhdf/_hdfext.cpython-34m.so(+0x237ed)[0x7f6bc41767ed]
/usr/lib64/libpython3.4m.so.1.0(PyEval_EvalFrameEx+0x89c2)[0x348c319592]
======= Memory map: ========
00400000-00401000 r-xp 00000000 08:07 2883789                            /home/user/venv/bin/python3.4
348b200000-348b3b6000 r-xp 00000000 08:07 2883790                        /lib64/libc.so.6
348b3b6000-348b5b6000 ---p 001b6000 08:07 2883790                        /lib64/libc.so.6
Aborted (core dumped)
"""
    crash = only(text, *printers("glibc"))
    assert [(one.path, one.low, one.high) for one in crash.modules or ()] == [
        ("/home/user/venv/bin/python3.4", 0x400000, 0x401000),
        ("/lib64/libc.so.6", 0x348B200000, 0x348B5B6000),
    ]
    found = verdict(text, *printers("glibc"))
    assert found.rule == "stack-smash"
    assert found.culprit is not None and found.culprit.module == "_hdfext.cpython-34m.so"


def test_catchsegv_decodes_the_page_fault() -> None:
    """Format of glibc's sysdeps/unix/sysv/linux/x86_64/register-dump.h (glibc 2.2 to 2.34)."""
    text = """*** Segmentation fault
Register dump:

 RAX: 0000000000000000   RBX: 0000000000000000   RCX: 00007fff00001000
 RIP: 000055d8e1a3c13d   EFLAGS: 00010246

 Trap: 0000000e   Error: 00000006   OldMask: 00000000   CR2: 00000010

Backtrace:
./op(_ZN2op4FillEPii+0x14)[0x55d8e1a3c13d]
/lib/x86_64-linux-gnu/libc.so.6(__libc_start_main+0xf3)[0x7f5f5e2d50b3]

Memory map:
"""
    crash = only(text, *printers("glibc"))
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.address, crash.fault.access) == ("SIGSEGV", 0x10, "write")
    assert crash.registers is not None and crash.registers["rcx"] == 0x7FFF00001000
    found = verdict(text, *printers("glibc"))
    assert found.rule == "null-dereference" and found.culprit is not None
    assert found.culprit.function == "op::Fill"


def test_a_list_of_an_exception_is_no_death() -> None:
    """Format of dmlc-core, as XGBoost and MXNet print it in exceptions."""
    text = """xgboost.core.XGBoostError: [10:01:02] /workspace/src/objective/objective.cc:26: Unknown objective function
Stack trace:
  [bt] (0) /usr/lib/libxgboost.so(+0x1a3c9a) [0x7f8f3f0c4c9a]
  [bt] (1) /usr/lib/libxgboost.so(XGBoosterUpdateOneIter+0x68) [0x7f8f3f0d1f88]
"""
    crash = only(text, *printers("glibc"))
    assert crash.crashed_thread is None and crash.fault is None


def test_a_list_below_a_signal_is_a_death() -> None:
    text = """Segmentation fault: 11

Stack trace:
  [bt] (0) /usr/lib/libmxnet.so(+0x3c9c0a) [0x7f8f3f0c4c0a]
  [bt] (1) /lib/x86_64-linux-gnu/libc.so.6(+0x3ef20) [0x7f9046b51f20]
  [bt] (2) /usr/lib/libmxnet.so(MXImperativeInvokeEx+0x9f) [0x7f8f42a1c8bf]
"""
    crash = only(text, *printers("glibc"))
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV"
    assert names(crash) == ["MXImperativeInvokeEx"]


def test_psm_of_mpi_programs() -> None:
    """From https://github.com/mlcommons/storage/issues/91."""
    text = """python:22 terminated with signal 4 at PC=7f1202caa71a SP=7ffd276e5e90.  Backtrace:
/venv/libtensorflow_framework.so.2(_ZN6google8protobuf8internal13OnShutdownRunEPFvPKvES3_+0xba)[0x7f1202caa71a]
/lib64/ld-linux-x86-64.so.2(+0x647e)[0x7f1234ffa47e]
python(+0x28163f)[0x55f79ae5763f]
"""
    crash = only(text, *printers("glibc"))
    assert (crash.pid, crash.fault and crash.fault.signal) == (22, "SIGILL")
    found = verdict(text, *printers("glibc"))
    assert found.rule == "illegal-instruction"
    assert found.culprit is not None and found.culprit.function == "google::protobuf::internal::OnShutdownRun"


# ---------------------------------------------------------------- c10, Paddle


C10 = """Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f8d1 in /usr/lib/torch/lib/libc10.so)
frame #1: <unknown function> + 0x1f1de (0x7f8d2 in /usr/lib/torch/lib/libc10_cuda.so)
frame #2: op::roi_align(at::Tensor const&) + 0x221 (0x7f8d3 in /usr/lib/op.so)
"""


def test_c10_exception_that_python_caught() -> None:
    crash = only(C10, *printers("c10"))
    assert crash.crashed_thread is None
    assert [(one.function, one.module) for one in frames(crash)][1:] == [
        (None, "/usr/lib/torch/lib/libc10_cuda.so"),
        ("op::roi_align(at::Tensor const&)", "/usr/lib/op.so"),
    ]


def test_c10_exception_that_nobody_caught() -> None:
    text = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error\n" + C10
    assert only(text, *printers("c10")).crashed_thread is not None


def test_c10_signal() -> None:
    """Format of c10/util/signal_handler.cpp."""
    text = """SIGSEGV(11), PID: 3049, Thread 3095:
frame #0: c10::(anonymous namespace)::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x5b (0x7f8d in libc10.so)
frame #1: <unknown function> + 0x42520 (0x7f8e in /lib/x86_64-linux-gnu/libc.so.6)
frame #2: at::native::mkldnn_linear(at::Tensor const&) + 0x10 (0x7f8f in libtorch_cpu.so)
"""
    crash = only(text, *printers("c10"))
    assert fault(crash) == ("SIGSEGV", None, None)
    assert names(crash) == ["at::native::mkldnn_linear(at::Tensor const&)"]


PADDLE = """--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::AnalysisPredictor::ZeroCopyRun()
1   paddle::framework::NaiveExecutor::Run()
2   paddle::framework::OperatorWithKernel::BuildPhiKernelContext(paddle::framework::RuntimeContext const&) const

----------------------
Error Message Summary:
----------------------
FatalError: `Segmentation fault` is detected by the operating system.
  [TimeInfo: *** Aborted at 1706587367 (unix time) try "date -d @1706587367" if you are using GNU date ***]
  [SignalInfo: *** SIGSEGV (@0x10) received by PID 1 (TID 0x7f17d87ff6c0) from PID 16 ***]
"""


def test_paddle() -> None:
    """From https://github.com/PaddlePaddle/Paddle/issues/61332."""
    crash = only(PADDLE, *printers("paddle"))
    assert names(crash)[0] is not None and "BuildPhiKernelContext" in str(names(crash)[0])
    whole = death(PADDLE, *printers("paddle"), *printers("glog"))
    assert whole.fault is not None and (whole.fault.signal, whole.fault.address) == ("SIGSEGV", 0x10)
    found = verdict(PADDLE, *printers("paddle"), *printers("glog"))
    assert found.rule == "null-dereference"
    assert found.culprit is not None and "BuildPhiKernelContext" in (found.culprit.function or "")


def test_paddle_without_a_stack() -> None:
    text = (
        PADDLE.split("0   paddle", maxsplit=1)[0]
        + "No stack trace in paddle, may be caused by external reasons.\n\n"
        + PADDLE[PADDLE.index("----------------------\nError") :]
    )
    crash = death(text, *printers("paddle"), *printers("glog"))
    assert crash.fault is not None and crash.fault.signal == "SIGSEGV"


# ---------------------------------------------------------------- others


def test_backward() -> None:
    """Format of backward.hpp."""
    text = """Stack trace (most recent call last):
#3    Object "/usr/bin/python3.8", at 0x5f1a3d, in _start
#2    Source "/src/op.cc", line 20, in main [0x55d8]
         18:   int n = 3;
      >  20:   op::Fill(p, n);
#1    Source "/src/op.cc", line 12, in op::Fill(int*, int) [0x55d7]
#0    Object "/usr/lib/libop.so", at 0x7f3e, in op::Store(int*)
Segmentation fault (Address not mapped to object [0x10])
"""
    crash = only(text, *printers("backward"))
    assert fault(crash) == ("SIGSEGV", "SEGV_MAPERR", 0x10)
    assert names(crash) == ["op::Store(int*)", "op::Fill(int*, int)", "main", "_start"]
    assert verdict(text, *printers("backward")).rule == "null-dereference"


def test_boost() -> None:
    text = " 0# op::Fill(int*, int) at /src/op.cc:12\n 1# 0x00007F3E10 in /usr/lib/libop.so\n 2# main in ./a.out\n"
    crash = only(text, *printers("backward"))
    assert [(one.function, one.module, one.source) for one in frames(crash)] == [
        ("op::Fill(int*, int)", None, "/src/op.cc"),
        (None, "/usr/lib/libop.so", None),
        ("main", "./a.out", None),
    ]
    assert crash.crashed_thread is None


def test_llvm() -> None:
    crash = only(printed("llvm")["clang"], *printers("llvm"))
    assert names(crash)[:2] == [None, "clang::Preprocessor::HandlePragmaDirective(clang::PragmaIntroducer)"]
    assert frames(crash)[0].module == "/lib/x86_64-linux-gnu/libclang-cpp.so.14"
    assert crash.crashed_thread is not None


def test_llvm_without_names() -> None:
    text = """Stack dump without symbol names (ensure you have llvm-symbolizer in your PATH or set the environment var):
0  libtriton.so       0x000000010a1b2c3d llvm::sys::PrintStackTrace(llvm::raw_ostream&, int) + 41
1  libtriton.so       0x000000010a1b2c4d llvm::sys::RunSignalHandlers() + 41
2  libsystem_platform.dylib 0x00007ff8001a25ed _sigtramp + 29
3  libtriton.so       0x000000010a9b2c3d mlir::triton::LoadOp::verify() + 120
"""
    assert names(only(text, *printers("llvm"))) == ["mlir::triton::LoadOp::verify()"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" *** caught segfault ***\naddress 0x28, cause 'memory not mapped'\n", ("SIGSEGV", "SEGV_MAPERR", 0x28)),
        (" *** caught segfault ***\naddress (nil), cause 'unknown'\n", ("SIGSEGV", None, 0)),
        (
            " *** caught bus error ***\naddress 0x7f0010, cause 'non-existent physical address'\n",
            ("SIGBUS", "BUS_ADRERR", 0x7F0010),
        ),
    ],
)
def test_r(text: str, expected: tuple[object, ...]) -> None:
    assert fault(only(text, *printers("r"))) == expected


def test_julia() -> None:
    """Format of Julia 1.6 to 1.11's src/signal-handling.c."""
    text = """
[4711] signal 11 (1): Segmentation fault
in expression starting at /src/run.jl:3
jl_array_ptr_copy at /usr/lib/libjulia-internal.so.1 (unknown line)
load! at /src/op.jl:12 [inlined]
unknown function (ip: 0x7f12)
Allocations: 2722 (Pool: 2712; Big: 10); GC: 0
"""
    crash = only(text, *printers("julia"))
    assert fault(crash) == ("SIGSEGV", None, None)
    assert crash.pid == 4711
    assert names(crash) == ["jl_array_ptr_copy", "load!", None]
    assert frames(crash)[1].source == "/src/op.jl"


def test_java_that_was_killed() -> None:
    text = printed("java")["sent"]
    crash = only(text, jvm.READER)
    assert crash.fault is not None
    assert (crash.fault.code, crash.fault.sender, crash.fault.sent_by_itself) == ("SI_USER", 4105, False)
    assert verdict(text, jvm.READER).rule == "killed-by-signal"


def test_java_with_a_native_library() -> None:
    """Format of HotSpot's hs_err files, JDK 8 to 21."""
    text = """# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f43b8fcbf14, pid=4126, tid=0x00007f4300001700
#
# Problematic frame:
# C  [libtensorflow_framework.so.2+0x1a2b]  tensorflow::Tensor::Tensor(tensorflow::Tensor const&)+0x14

siginfo: si_signo: 11 (SIGSEGV), si_code: 1 (SEGV_MAPERR), si_addr: 0x0000000000000008
Native frames: (J=compiled Java code, j=interpreted, Vv=VM code, C=native code)
C  [libtensorflow_framework.so.2+0x1a2b]  tensorflow::Tensor::Tensor(tensorflow::Tensor const&)+0x14
C  [libtensorflow_jni.so+0x9c1]  Java_org_tensorflow_Session_run+0x51

"""
    found = verdict(text, jvm.READER)
    assert found.rule == "null-dereference"
    assert found.culprit is not None and found.culprit.module == "libtensorflow_framework.so.2"


@pytest.mark.parametrize("kind", ["glog", "open-mpi", "glibc", "c10", "paddle", "backward", "llvm"])
def test_a_log_without_a_death_has_no_stack(kind: str) -> None:
    text = "epoch 1/3 loss 0.2 @ 0x1f\n[host:1] ready\nProcess 12 started, signal handlers installed\nStack dump: no\n"
    assert pieces(text, *printers(kind)) == []
