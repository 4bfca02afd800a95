"""Two copies of one library in one process.

What happened
-------------
Two files of the same library are loaded: two C++ runtimes, two CUDA runtimes, two allocators, two copies of protobuf
or of Python. Each has its own heap, its own tables of types, its own state. An object that one made and the other one
handles breaks both. Or one file is loaded, of another version than the program was built for.

How to be sure
--------------
The memory map shows both files, and the process crashed in code of one of them, or at the border (``free(): invalid
pointer``). That two copies are loaded is a fact. That this is the reason is only possible, unless both are on the
stack of the thread that died. Some libraries compare versions themselves and end the program: ``Headers are 1.10.4,
library is 1.10.5`` (HDF5), ``Wrong JPEG library version``, ``Attempt to free invalid pointer`` (tcmalloc).

On Windows, a null pointer in ``mtx_do_lock`` of ``msvcp140.dll`` before 14.40 is a clash of two versions of the
Visual C++ runtime. An extension was built by Visual Studio 2022 17.10 or later, and a package (such as pyarrow or
PyQt) had loaded an older copy first. On Linux, a null function under ``std::call_once`` is a clash of two copies of
libstdc++. So is a stream that calls the wrong facet.

How to fix it now
-----------------
Find which package brings each copy: see the paths, ``pip list``, ``conda list`` and ``ldd FILE``. Keep one copy.
Install all packages from the same channel, and set no ``LD_LIBRARY_PATH`` or ``LD_PRELOAD`` that puts another copy
first. ``env -u LD_LIBRARY_PATH -u LD_PRELOAD python ...`` shows in one run whether that was it. On Windows, install
the newest Visual C++ Redistributable. Update the package that brings an older ``msvcp140.dll``, or delete its copy.

How to prevent it
-----------------
Build extensions against the libraries of the environment, not of the system. Do not link the C++ runtime or Python
statically into an extension.

What it is often mistaken for
-----------------------------
A bug of the function on top of the stack. Copies that are hidden on purpose (wheels rename them) are mostly harmless,
and so are two copies of which only one is in use.

Sources
-------
- https://man7.org/linux/man-pages/man8/ld.so.8.html
- https://github.com/pypa/auditwheel
- https://github.com/microsoft/STL/wiki/Changelog (VS 2022 17.10, the constructor of mutex)
"""

from __future__ import annotations

from necropsy.lazy_re import regex
from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, frames_of, messages, quote, real_fault, stack_exhausted
from necropsy.rule import Finding, Found, Rule, Tried
from necropsy.rules import cpp_runtimes, quoting
from necropsy.rules.aborts import may_have_aborted
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.experiment_proposals import of_library_path

_ONE_ONLY = regex(
    r"(?P<name>libstdc\+\+|libcudart|libcudnn|libcublas|libcublasLt|libnccl|libprotobuf|libpython3\.\d+|libtensorflow_framework|"
    r"libtensorflow_cc|libtorch_cpu|libc10|libjemalloc|libtcmalloc\w*|libarrow|libtbb|libhdf5|libcrypto|libssl)"
    r"(?:-[0-9a-f]{8})?\.so"
)
"""Libraries of which a process should hold one copy, with the hash that auditwheel puts into a wheel's copy."""
_ALLOCATE = {"libstdc++", "libjemalloc", "libtcmalloc", "libtcmalloc_minimal"}
FIRST = 24


def _match(crash: Crash) -> Finding | None:
    if stack_exhausted(crash):
        return None
    if (told := _told(crash) or cpp_runtimes.mixed(crash)) is not None:
        return told
    copies = _copies(crash)
    freed = [message for message in messages(crash, "glibc-abort") if "invalid pointer" in message.text]
    died = died_by(crash, "SIGSEGV", "SIGBUS", "SIGABRT")
    if not copies or not died or not (real_fault(crash) or freed):
        return None
    both = {name: paths for name, paths in copies.items() if len(_on_stack(crash, paths)) > 1}
    if not both and freed:
        # A block that one copy gave out and the other one was asked to free.
        copies = {name: paths for name, paths in copies.items() if _on_stack(crash, paths) or name in _ALLOCATE}
    elif not both:
        return None
    name, paths = next(iter((both or copies).items()), ("", ()))
    if not name:
        return None
    seen: Found = tuple(
        Evidence(claim=f"a copy of {name} that is loaded", seen=path, where="memory map") for path in paths
    )
    border = "both are on the stack that died" if both else "a block was freed by an allocator that does not know it"
    return Finding(
        evidence=(
            *died,
            *seen,
            *(quote(message, "the C library's message") for message in freed[-1:]),
            *python_line(crash),
        ),
        summary=f"This process holds {len(paths)} copies of {name}, and {border}.",
        confidence="likely" if both else "possible",
        culprit=culprit_of(crash),
        fixes=(
            Fix(
                text=f"Keep one copy of {name}: take the packages from one source, and clear LD_LIBRARY_PATH and LD_PRELOAD.",
                command=f"ls -l {' '.join(quoting.posix(path, 'PATH') for path in paths)}; echo $LD_LIBRARY_PATH $LD_PRELOAD",
            ),
        ),
    )


def _told(crash: Crash) -> Finding | None:
    """The library's own message about a second copy, or an allocator's about another allocator's block."""
    mixed = messages(crash, "library-mixed")
    foreign = messages(crash, "foreign-free")
    found = list(mixed or foreign)
    if not found or not may_have_aborted(crash):
        return None
    versions = next((one for one in mixed if "built" in one.fields), None)
    if mixed:
        library = next((one.fields["library"] for one in mixed if "library" in one.fields), "a library")
        how = f": built for {versions.fields['built']}, loaded {versions.fields['loaded']}" if versions else ""
        summary = f"Two versions of {library} met in this process{how}."
    else:
        library = "the allocator"
        summary = "tcmalloc was asked to free something that is not one of its blocks. It is a block of another allocator in this process, a pointer into the middle of one, or one that was already freed."
    died = died_by(crash, "SIGABRT")
    name = quoting.posix(library.split()[0].lower(), "LIBRARY")
    return Finding(
        evidence=(*(quote(one, "the library's own message") for one in found[:2]), *died, *python_line(crash)),
        summary=summary,
        confidence="certain" if died and not foreign else "likely",
        culprit=culprit_of(crash),
        fixes=(
            Fix(
                text="Keep one copy of the allocator: take it out of LD_PRELOAD, or load it before everything else.",
                command="echo $LD_PRELOAD; ldd $(python -c 'import sys; print(sys.executable)')",
            )
            if foreign
            else Fix(
                text=f"Keep one copy of {library}: take all packages that bring it from one source, pip's or conda's, in a fresh environment.",
                command=f"pip list | grep -i {name}; conda list | grep -i {name}",
            ),
            Fix(text="Or import the package that brings the newer copy first."),
        ),
    )


def _on_stack(crash: Crash, paths: tuple[str, ...]) -> set[str]:
    """Files with code on the crashed stack, by address or by a name that is unique to one."""
    found: set[str] = set()
    names = [_file(path) for path in paths]
    for frame in frames_of(crash)[:FIRST]:
        for module in crash.modules or ():
            if module.path in paths and frame.address is not None and module.low <= frame.address < module.high:
                found.add(module.path)
        if frame.address is None and frame.module is not None and names.count(_file(frame.module)) == 1:
            found.add(paths[names.index(_file(frame.module))])
    return found


def _copies(crash: Crash) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for module in crash.modules or ():
        if match := _ONE_ONLY.match(_file(module.path)):
            found.setdefault(match["name"], set()).add(module.path)
    return {name: tuple(sorted(paths)) for name, paths in sorted(found.items()) if len(paths) > 1}


def _file(path: str) -> str:
    return path.rsplit("/", 1)[-1]


RULE = Rule(
    _match,
    beats=("abort", "invalid-read", "invalid-write", "exit-status-only", "killed-by-signal"),
    experiments=of_library_path,
    tried=Tried(
        advice="Keep one copy of the library.",
        result="crash gone",
        how="The printed ``ls`` showed both copies; with one of them loaded the program ended normally.",
        test="tests/rules/test_advice.py::test_two_copies_of_a_library",
    ),
    hit="""
        signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        module /venv/nvidia/cudnn/libprotobuf.so.23
        module /opt/conda/lib/libprotobuf.so.25
        frame google::protobuf::Arena::AllocateAligned(unsigned long) @ libprotobuf.so.25 takes 32
        frame google::protobuf::MessageLite::ParseFromArray(void const*, int) @ libprotobuf.so.23 takes 64
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
        thread 4711 python3 crashed
        stack 8MiB used 20KiB whole main
        module /usr/lib/libstdc++.so.6
        module /opt/conda/lib/libstdc++.so.6
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
)
