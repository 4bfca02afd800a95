"""Two OpenMP runtimes in one process.

What happened
-------------
OpenMP's runtime keeps the pool of threads for parallel loops. Two packages brought a copy each: Intel's (libiomp5), LLVM's (libomp), GNU's
(libgomp). Intel's and LLVM's notice each other and abort; other combinations crash, hang or run slowly.

How to be sure
--------------
``OMP: Error #15: Initializing X, but found Y already initialized`` is the last line before an abort. Without it, two different runtimes
among the loaded libraries and a crash inside one of them make it only possible.

How to fix it now
-----------------
Install the packages from one source: all from conda-forge or all from pip. With conda: ``conda install nomkl``, or find who brings which by
``conda list | grep -i openmp``. ``KMP_DUPLICATE_LIB_OK=TRUE`` silences the check, at the risk of wrong results.

How to prevent it
-----------------
Do not mix conda's numpy, scikit-learn and torch with pip's in one environment.

What it is often mistaken for
-----------------------------
A crash of TensorFlow or PyTorch: it is the combination. A race in your own code.

Sources
-------
- https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/2023-0/avoiding-conflicts-in-the-execution-environment.html
- https://openmp.llvm.org/design/Runtimes.html
"""

from __future__ import annotations

import re

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import calls, died_by, messages, quote, real_fault
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import quoting
from necropsy.rules.aborts import aborted, may_have_aborted
from necropsy.rules.culprit import python_line
from necropsy.rules.experiment_proposals import of_openmp
from necropsy.rules.log_rules import teller

_RUNTIME = re.compile(r"(?P<name>libgomp|libiomp5|libomp|vcomp)(?:-[0-9a-f]+)?\.(?:so|dylib|dll)")


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "duplicate-openmp")
    runtimes = _runtimes(crash)
    fixes = _fixes(runtimes)
    if found and may_have_aborted(crash):
        message = found[-1]
        died = aborted(crash)
        return Finding(
            evidence=(quote(message, "OpenMP's last words"), *died, *runtimes, *python_line(crash)),
            summary=f"Two OpenMP runtimes are in this process, `{message.fields['library'].rsplit('/', 1)[-1]}` and `{message.fields['other'].rsplit('/', 1)[-1]}`, and the second one ended it.",
            confidence="certain" if died else "likely",
            culprit=teller(crash),
            fixes=fixes,
        )
    registering = calls(
        crash, "__kmp_register_library_startup", first=12, claim="a second OpenMP runtime registered itself"
    )
    died = aborted(crash)
    if registering and died and crash.fault is not None and len(runtimes) > 1:
        gave_up = calls(crash, "__kmp_fatal", first=12, claim="the OpenMP runtime reported a fatal error")
        return Finding(
            evidence=(*registering, *gave_up, *died, *runtimes, *python_line(crash)),
            summary="Two OpenMP runtimes are in this process, and the second one ended it when it found the first.",
            confidence="certain" if gave_up else "likely",
            culprit=teller(crash),
            fixes=fixes,
        )
    inside = calls(crash, r"__kmp_.*|__kmpc_.*|GOMP_.*|gomp_.*|omp_.*", first=12, claim="it crashed inside OpenMP")
    if len(runtimes) < 2 or not inside or not real_fault(crash):
        return None
    return Finding(
        evidence=(*died_by(crash, "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"), *inside, *runtimes, *python_line(crash)),
        summary="It crashed inside an OpenMP runtime, and the process holds another one: they may conflict.",
        # Two copies of one runtime have the same names: a thread of the one runs in the other.
        confidence="likely" if _same(runtimes) and inside[0].where in {"frame 0", "frame 1"} else "possible",
        culprit=teller(crash),
        fixes=fixes,
    )


def _fixes(runtimes: Found) -> tuple[Fix, ...]:
    paths = [one.seen for one in runtimes]
    conda = not paths or any("conda" in path or "/envs/" in path for path in paths)
    bring = "the packages that bring them"
    if conda:
        one_source = Fix(
            text="Take all packages from one source, so that one OpenMP runtime is left.",
            command="conda install nomkl; find $CONDA_PREFIX -name 'lib*omp*.so*'",
        )
    elif _same(runtimes) and not any(path.lower().endswith(".dll") for path in paths):
        # Libraries are told apart by their files: two names of one file are loaded once.
        one_source = Fix(
            text=f"Leave one OpenMP runtime: install {bring} from one source, or put a link to one copy, the newer, in the other's place.",
            command=f"ln -sf {quoting.posix(paths[0], 'ONE')} {quoting.posix(paths[1], 'OTHER')}",
        )
    else:
        one_source = Fix(
            text=f"Leave one OpenMP runtime: install {bring} from one source (all by pip, or all by conda).",
            command="pip list --verbose",
        )
    return (
        one_source,
        Fix(
            text="As a workaround, at the risk of wrong results, let both run.",
            command="KMP_DUPLICATE_LIB_OK=TRUE python ...",
        ),
    )


def _same(runtimes: Found) -> bool:
    names = [match["name"] for one in runtimes if (match := _RUNTIME.match(one.seen.rsplit("/", 1)[-1]))]
    return len(set(names)) < len(names)


def _runtimes(crash: Crash) -> Found:
    """Each loaded copy once; empty if there is only one."""
    paths = sorted({module.path for module in crash.modules or () if _RUNTIME.match(module.path.rsplit("/", 1)[-1])})
    if len(paths) < 2:
        return ()
    return tuple(Evidence(claim="an OpenMP runtime that is loaded", seen=path, where="memory map") for path in paths)


RULE = Rule(
    _match,
    needs=(),
    beats=("abort", "exit-status-only", "killed-by-signal"),
    experiments=of_openmp,
    tried=Tried(
        advice="Leave one OpenMP runtime, by the printed link.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with two copies of libiomp5.so "
            "(intel-openmp 2024.2.1): after the printed ``ln -sf`` both names led to one copy, and the "
            "program ended normally."
        ),
    ),
    hit="""
        signal SIGABRT SI_TKILL
        sent-by itself
        thread 4711 python3 crashed
        frame raise @ libc.so.6 takes 16
        frame abort @ libc.so.6 takes 160
        frame __kmp_fatal @ libiomp5.so takes 32
        frame __kmp_register_library_startup @ libiomp5.so takes 64
        log OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        module /usr/lib/libgomp.so.1
        module /usr/lib/libomp.so.5
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
)
