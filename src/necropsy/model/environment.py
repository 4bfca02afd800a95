"""Where a program runs or ran: the system, the interpreter, its packages and their libraries, variables and limits.

A crash has the environment that it died in, of which a supervisor sees a part; ``doctor`` collects one of a program
that has not been started. Any part may be missing (``None``): ``gaps`` then says why.
"""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Gap, Noun
from necropsy.model.needs import CpuNeed, CudaBuild, CudaDriver, Dll, Gpu, Processor
from necropsy.model.op import Binary, CodeDefect, Op, SourceUse


class Interpreter(Noun, frozen=True, kw_only=True):
    """The Python interpreter, as it describes itself."""

    executable: str
    """Its path, spelled as in commands."""
    version: str
    """``3.11.7``"""
    implementation: str = "cpython"
    prefix: str | None = None
    base_prefix: str | None = None
    """The installation that a virtual environment rests on; the same as ``prefix`` where there is none."""
    machine: str | None = None
    """``x86_64``, ``aarch64``, ``AMD64``"""
    system: str | None = None
    """``sys.platform``: ``linux``, ``win32``, ``darwin``"""
    libc: str | None = None
    """``glibc 2.36``"""
    soabi: str | None = None
    """``cpython-311-x86_64-linux-gnu``"""
    suffixes: tuple[str, ...] | None = None
    """Endings of the file names of extension modules that it loads."""
    free_threaded: bool = False
    path: tuple[str, ...] | None = None
    """``sys.path`` of a script in the working directory."""
    python_path: tuple[str, ...] = ()
    """The entries of ``path`` that PYTHONPATH has added."""
    user_site: str | None = None
    """The user's own site-packages folder, where it is on ``path``."""
    working_directory: str | None = None
    conda: bool = False
    externally_managed: bool = False
    """pip refuses to change its packages (PEP 668)."""
    markers: dict[str, str] = {}
    """The values of environment markers (PEP 508)."""


class Requirement(Noun, frozen=True, kw_only=True):
    """One requirement of a distribution (``Requires-Dist``), or of the command line."""

    text: str
    """The line as it was written."""
    name: str
    """The normalised name of what is required (PEP 503)."""
    specifier: str = ""
    """``<2.0.0,>=1.23.5``"""
    extras: tuple[str, ...] = ()
    applies: bool = True
    """Its marker holds for this interpreter, and its extra was asked for."""


class Damage(Noun, frozen=True, kw_only=True):
    """A file that is not as its distribution's RECORD says, or that ends too early; sizes in bytes."""

    path: str
    kind: Literal["truncated", "size", "hash"]
    """``truncated``: shorter than it has to be; ``size``: another size; ``hash``: other contents of the same size."""
    recorded: int | None = None
    size: int | None = None
    native: bool = False
    """It is a library."""


class Shadow(Noun, frozen=True, kw_only=True):
    """A module that is imported from elsewhere than from the distribution that owns it."""

    module: str
    found: str
    """The file or folder that is imported."""
    installed: str
    """The one that the distribution has."""
    source: Literal["PYTHONPATH", "user-site", "working-directory", "other"]


class Distribution(Noun, frozen=True, kw_only=True):
    """An installed distribution package; of two with one name, the first on ``sys.path``."""

    name: str
    """The normalised name (PEP 503)."""
    version: str
    location: str
    """The folder on ``sys.path`` that it is installed in."""
    metadata: str | None = None
    """Its metadata's file."""
    checked: bool = False
    """It is a framework, or was named, or one of these requires it."""
    named: bool = False
    """It is a framework, or was named."""
    installer: str | None = None
    """``pip``, ``conda``, ``uv``"""
    conda: str | None = None
    """conda's own name of the package that brought it: ``pytorch`` for torch."""
    requires_python: str | None = None
    requires: tuple[Requirement, ...] = ()
    tags: tuple[str, ...] = ()
    """What it was built for: ``cp311-cp311-manylinux2014_x86_64``. Empty where its metadata does not say."""
    modules: tuple[str, ...] = ()
    """Its top-level modules."""
    recorded: int | None = None
    """How many files its RECORD lists. None: it has none, or it was not read."""
    missing: tuple[str, ...] | None = None
    """Of these, the ones that are gone. None: not looked at."""
    damaged: tuple[Damage, ...] | None = None
    shadows: tuple[Shadow, ...] | None = None
    generated_by: str | None = None
    """The newest release of protobuf that generated code of it was made with: ``5.28.3``."""


class Overlap(Noun, frozen=True, kw_only=True):
    """Two distributions that own the same files, or two installations of one in one folder."""

    first: str
    second: str
    first_version: str
    second_version: str
    location: str
    """The folder on ``sys.path`` that both are installed in."""
    files: int
    """How many files both own."""
    example: str
    """One of these."""


class Needed(Noun, frozen=True, kw_only=True):
    """A library that another one asks for (``DT_NEEDED``), and which file the loader would take."""

    name: str
    path: str | None = None
    """None: it would not be found."""
    by: str | None = None
    """What it would be found by: ``RPATH``, ``LD_LIBRARY_PATH``, ``RUNPATH``, ``ld.so.cache``, ``default``; ``loaded``
    for one that the same installation has, and loads by its path."""
    otherwise: str | None = None
    """The file that it would take without LD_LIBRARY_PATH, where that is another one; ``""``: none."""


class VersionNeed(Noun, frozen=True, kw_only=True):
    """Versions of symbols that a library needs of another one (``DT_VERNEED``)."""

    library: str
    versions: tuple[str, ...]
    """``GLIBCXX_3.4.30``"""


class MissingSymbol(Noun, frozen=True, kw_only=True):
    """A symbol that a library needs and that nothing it depends on has."""

    name: str
    wanted_of: tuple[str, ...] = ()
    """The libraries of other distributions that were searched."""


class Library(Noun, frozen=True, kw_only=True):
    """A native library that would be loaded: one of a checked distribution, or one that these need."""

    path: str
    """As it would be loaded; it may be a link."""
    distribution: str | None = None
    """Who brings it; None for a library of the system, and for the user's own."""
    is_op: bool = False
    """It was named with ``--op``."""
    soname: str | None = None
    machine: str | None = None
    """What it was built for: ``x86_64``, ``aarch64``, or the number of the ELF machine."""
    system: str | None = None
    """``linux``, ``win32``, ``darwin``, by its format."""
    build_id: str | None = None
    needed: tuple[Needed, ...] | None = None
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    needs: tuple[VersionNeed, ...] | None = None
    defines: tuple[str, ...] | None = None
    """The versions of symbols that it has (``DT_VERDEF``)."""
    missing: tuple[MissingSymbol, ...] | None = None
    """None: not looked for."""
    numpy: int | None = None
    """The generation of NumPy's C interface that it was compiled for: 1, or 2, which works with 1.x too. None: it uses
    none, or that was not looked at."""
    tls_size: int | None = None
    """Bytes of thread-local storage."""
    static_tls: bool = False
    """Its thread-local storage has to lie in the static block (``DF_STATIC_TLS``)."""
    unsupported: tuple[CpuNeed, ...] | None = None
    """Instructions in it that this processor does not have. None: it has none, or they were not looked for."""
    isa_level: int | None = None
    """The microarchitecture level of x86-64 that it is marked to need: 3 for ``x86-64-v3``. None: it has no mark."""


class Import(Noun, frozen=True, kw_only=True):
    """How importing a distribution's modules went, in a process of the interpreter under the supervisor."""

    distribution: str
    """The normalised name (PEP 503)."""
    module: str | None = None
    """The one whose import failed or did not end. None: it ended after all of them were imported."""
    outcome: Literal["imported", "raised", "died", "timeout"]
    """``died``: the process was killed, or ended itself; ``timeout``: it was ended when the time was over."""
    how: str | None = None
    """``killed by SIGSEGV``, ``it exited with code 3``"""
    text: str | None = None
    """The exception's last line: ``ImportError: libfoo.so.1: cannot open shared object file``."""
    place: str | None = None
    """The file whose code raised the exception, or the library that the process died in."""
    imported: tuple[str, ...] = ()
    """Modules that were imported."""
    seconds: float | None = None
    """From the first import's start to the end of the last one."""
    cpu_s: float | None = None
    """Seconds of processor time in these."""
    read_bytes: int | None = None
    """Bytes that were read from storage, not from the file cache."""
    rule: str | None = None
    """The rule on crashes that says why it died or failed."""
    summary: str | None = None
    """What that rule says."""
    advice: dict[str, str] = {}
    """That rule's fixes: each text with its command, or with an empty one."""


class Preload(Noun, frozen=True, kw_only=True):
    """One entry of LD_PRELOAD, and the file that it names; None where there is no such file."""

    entry: str
    path: str | None = None


class Mount(Noun, frozen=True, kw_only=True):
    """A file system that programs write to; sizes in bytes."""

    role: str
    """``/dev/shm``, ``TMPDIR``, ``home``, ``reports``"""
    path: str
    size: int
    free: int
    """What this user may still write."""
    free_files: int | None = None
    """How many files may still be made; None if the file system has no such limit."""
    is_read_only: bool = False


class Limit(Noun, frozen=True, kw_only=True):
    """A limit that was set, and what was in use of it, shortly before the process ended.

    ``name`` is ``RLIMIT_AS``, ``RLIMIT_CPU``, ... (setrlimit(2)), ``memory.max`` or ``pids.max`` (of a control group),
    ``/dev/shm``, or ``vm.max_map_count``. Values are bytes, seconds of CPU time, or counts (threads: ``RLIMIT_NPROC``,
    ``pids.max``).
    """

    name: str
    limit: int
    """The soft limit."""
    hard: int | None = None
    used: int | None = None
    """For ``RLIMIT_FSIZE``: the size of the largest file that was open for writing."""
    peak: int | None = None
    where: str | None = None
    """The file of the control group that sets it; the file that ``used`` speaks of."""


class Machine(Noun, frozen=True, kw_only=True):
    """The machine, or what a container shows of it, and what the kernel allows there. Sizes in bytes."""

    memory: int | None = None
    swap: int | None = None
    processors: int | None = None
    """Those that this process may use."""
    is_container: bool = False
    core_pattern: str | None = None
    """``/proc/sys/kernel/core_pattern``"""
    ptrace_scope: int | None = None
    """Yama's ``kernel.yama.ptrace_scope``; None without Yama."""
    tracing: str | None = None
    """Why a child process cannot be traced; None if it can, or if that was not tried."""
    user_threads: int | None = None
    """What RLIMIT_NPROC counts: threads of all processes of this user."""
    hard_limits: dict[str, int] = {}
    """As ``Environment.limits``."""


class UnreadSetting(Noun, frozen=True, kw_only=True):
    """A variable, or one of the flags in it, that occurs in none of the files that were searched."""

    variable: str
    flag: str | None = None
    """As it was written: ``--xla_foo=1``. None: the variable itself."""
    searched: tuple[str, ...] = ()
    """What was searched: distributions with their versions."""
    meant: str | None = None
    """A known name that is close to it."""


class Environment(Noun, frozen=True, kw_only=True):
    """Where the process lived. ``limits`` maps ``RLIMIT_STACK`` to its soft limit in bytes, -1 for unlimited."""

    platform: str | None = None
    python: str | None = None
    executable: str | None = None
    libc: str | None = None
    packages: dict[str, str] | None = None
    """Python packages that matter for a crash, with their versions."""
    variables: dict[str, str] | None = None
    """Only those that change how native code behaves."""
    limits: dict[str, int] | None = None
    cpu: str | None = None
    working_directory: str | None = None
    """Of the process, when it was read."""
    interpreter: Interpreter | None = None
    """This and all that follows: of `necropsy doctor`. Of a crash only ``libraries``, of those nearest to it."""
    distributions: tuple[Distribution, ...] | None = None
    """Every installed distribution, by name."""
    asked: tuple[Requirement, ...] = ()
    """The packages that were named on the command line."""
    overlaps: tuple[Overlap, ...] | None = None
    libraries: tuple[Library, ...] | None = None
    """Libraries of the checked distributions, and of the system what these need."""
    dlls: tuple[Dll, ...] | None = None
    """The same on Windows, where ``libraries`` is None; of the system only the C++ runtime, cuDNN and the driver."""
    mapped: bool = False
    """It is that of a process that died: its libraries were all loaded into that one process."""
    preload: tuple[Preload, ...] | None = None
    imports: tuple[Import, ...] | None = None
    """Of the frameworks, and of the packages that were named. None: nothing was imported."""
    ops: tuple[Op, ...] | None = None
    """The libraries that were named with ``--op``."""
    binaries: tuple[Binary, ...] | None = None
    """Of ``necropsy check``: the libraries that it was given."""
    uses: tuple[SourceUse, ...] | None = None
    """Of ``necropsy check``: places in the Python sources that it was given."""
    code: tuple[CodeDefect, ...] | None = None
    """Of ``necropsy check``: what is wrong in the C++ sources that it was given."""
    mounts: tuple[Mount, ...] | None = None
    user: int | None = None
    """The number of the user; 0 is root."""
    machine: Machine | None = None
    groups: tuple[Limit, ...] | None = None
    """The limits of control groups, ``memory.max`` and ``pids.max``; ``used`` is without reclaimable file cache."""
    unread: tuple[UnreadSetting, ...] | None = None
    """Of the variables whose reader is known by name: settings that nothing reads."""
    gpus: tuple[Gpu, ...] | None = None
    """The NVIDIA GPUs that a program may use."""
    driver: CudaDriver | None = None
    """Their driver; an empty one where no package has to do with GPUs. None: there is no GPU."""
    cuda: tuple[CudaBuild, ...] | None = None
    """The checked distributions that use CUDA, and frameworks that were built without it."""
    processor: Processor | None = None
    gaps: tuple[Gap, ...] = ()

    def gap(self, part: str) -> Gap | None:
        """Why ``part`` was not observed, if it is known to be missing."""
        return next((gap for gap in self.gaps if gap.part == part), None)

    def distribution(self, name: str) -> Distribution | None:
        """The installed distribution of this normalised name."""
        return next((one for one in self.distributions or () if one.name == name), None)
