"""An environment written by hand, line by line: what the ``hit`` and ``miss`` of rules on environments are made of.

One fact a line, the first word says which; what is not written was looked at and is not there.

::

    python 3.11.7 [x86_64] [linux]                       the interpreter, /env/bin/python (default: this line)
    managed                                              pip refuses to change its packages
    distribution NAME VERSION [checked] [conda] [TAG...] what follows belongs to it; tags contain two dashes
    requires REQUIREMENT                                 a requirement of the last distribution that applies
    requires-python SPECIFIER
    generated-by VERSION                                 of protobuf
    missing PATH | damaged PATH truncated|size|hash
    shadow MODULE FOUND INSTALLED SOURCE
    asked REQUIREMENT                                    of the command line
    overlap FIRST SECOND FILES EXAMPLE
    library PATH [of DISTRIBUTION] [machine NAME] [system NAME]   what follows belongs to it
    needed NAME [PATH] [by HOW] [otherwise PATH]
    runpath FOLDER | needs LIBRARY VERSION... | defines VERSION... | lacks SYMBOL [FILE]
    tls BYTES                                            its static thread-local storage
    dll PATH [of DISTRIBUTION] [version VERSION] [linker VERSION]     of Windows; what follows belongs to it
    dll-imports NAME [PATH] [by HOW] [functions A,B] | dll-opens NAME [PATH] [by HOW]
    preload ENTRY [PATH]
    variable NAME VALUE
    limit RLIMIT_STACK BYTES
    import DISTRIBUTION OUTCOME [MODULE] [SECONDS]       what follows belongs to it
    import-how TEXT | import-text TEXT | import-place FILE | import-rule RULE SUMMARY
    op PATH                                              a library that was named with --op; what follows belongs to it
    op-lacks SYMBOL... | op-abseil WANTED HAS | op-strings old|new old|new | op-needs-cpu FEATURE FLAG TEXT WHERE
    op-executable-stack | op-text-relocations | op-unprotected WHAT...
    binary PATH STACK                                    a library of `necropsy check`; what follows belongs to it
    defect RULE CASE FUNCTION NAME=VALUE...              of a C++ source; whole numbers are numbers
    cycle BYTES FUNCTION BYTES... by ENTRY | wide FUNCTION BYTES | path BYTES FUNCTION BYTES...
    use KIND NAME [value=N] [stack=N] [detail=TEXT]      a place in a Python source
    mount ROLE PATH SIZE FREE
    user NUMBER
    machine FIELD VALUE
    group memory.max|pids.max LIMIT USED
    unread VARIABLE MEANT | unread-flag VARIABLE [FLAG]
    gpu NAME [CAPABILITY]
    driver [kernel VERSION] [library PATH] [by HOW] [version VERSION] [answer NUMBER] [supports CUDA] [node FILE] [container yes]
    build DISTRIBUTION [VERSION of CUDA, or cpu] [ARCHITECTURE...]   what follows belongs to it
    loads NAME [PATH] [by HOW] [opened yes] [lies-at PATH]
    cudnn PATH [VERSION] [by HOW] [of DISTRIBUTION]
    part NAME [PATH [VERSION]]
    processor FLAG...
    gap PART: WHY                                        the part was not observed
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from necropsy.doctor.metadata import requirement
from necropsy.model import (
    Address,
    Binary,
    CallCycle,
    CallPath,
    CodeDefect,
    CodePlace,
    CpuNeed,
    CudaBuild,
    CudaDriver,
    CudaLibrary,
    Cudnn,
    CudnnPart,
    Damage,
    Distribution,
    Dll,
    DllNeed,
    Environment,
    Gap,
    Gpu,
    Import,
    Interpreter,
    Library,
    Limit,
    Machine,
    MissingSymbol,
    Mount,
    Needed,
    Op,
    Overlap,
    Preload,
    Processor,
    Requirement,
    Shadow,
    SourceUse,
    StackFrame,
    UnreadSetting,
    VersionNeed,
)

SITE = "/env/lib/python3/site-packages"


def environment(text: str) -> Environment:
    """The environment that ``text`` describes."""
    sketch = _Sketch()
    for line in map(str.strip, text.strip().splitlines()):
        word, _, rest = line.partition(" ")
        getattr(sketch, "on_" + word.replace("-", "_"))(*shlex.split(rest))
    return sketch.made()


def _frames(words: Sequence[str]) -> tuple[StackFrame, ...]:
    pairs = zip(words[::2], words[1::2], strict=True)
    return tuple(
        StackFrame(function=name, bytes=int(size), address=Address(0x1000 + 0x100 * number))
        for number, (name, size) in enumerate(pairs)
    )


class _Sketch:
    def __init__(self) -> None:
        self.interpreter = Interpreter(executable="/env/bin/python", version="3.11.7")
        self.distributions: list[Distribution] = []
        self.libraries: list[Library] = []
        self.dlls: list[Dll] = []
        self.parts: dict[str, Any] = {
            "overlaps": (),
            "preload": (),
            "imports": (),
            "mounts": (),
            "variables": {},
            "limits": {},
            "binaries": (),
            "uses": (),
            "code": (),
        }
        self.parts |= {"groups": (), "unread": (), "machine": Machine()}
        self.parts |= {"gpus": (), "processor": Processor()}
        self.cuda: list[CudaBuild] = []
        self.asked: list[Requirement] = []
        self.gaps: list[Gap] = []
        self.on_python("3.11.7")

    def made(self) -> Environment:
        parts = {
            **self.parts,
            "interpreter": self.interpreter,
            "distributions": tuple(self.distributions),
            "libraries": tuple(self.libraries),
            "dlls": tuple(self.dlls) if self.dlls else None,
            "asked": tuple(self.asked),
            "cuda": tuple(self.cuda),
            "gaps": tuple(self.gaps),
        }
        for gap in self.gaps:
            parts[gap.part] = None
        return Environment(python=self.interpreter.version, executable=self.interpreter.executable, **parts)

    def on_python(self, version: str, machine: str = "x86_64", system: str = "linux") -> None:
        major, minor, _ = version.split(".")
        abi = f"cpython-{major}{minor}-{machine}-linux-gnu"
        self.interpreter = Interpreter(
            executable="/env/bin/python",
            version=version,
            prefix="/env",
            base_prefix="/usr",
            machine=machine,
            system=system,
            libc="glibc 2.36",
            soabi=abi,
            suffixes=(f".{abi}.so", ".abi3.so", ".so"),
            markers={"python_version": f"{major}.{minor}", "python_full_version": version, "sys_platform": system},
        )

    def on_managed(self) -> None:
        self.interpreter = msgspec.structs.replace(self.interpreter, externally_managed=True)

    def on_distribution(self, name: str, version: str, *words: str) -> None:
        one = Distribution(
            name=name,
            version=version,
            location=SITE,
            metadata=f"{SITE}/{name}-{version}.dist-info/METADATA",
            checked="checked" in words,
            named="checked" in words,
            installer="conda" if "conda" in words else "pip",
            tags=tuple(word for word in words if word.count("-") >= 2),
            modules=(name,),
            recorded=3,
            missing=(),
            damaged=(),
            shadows=(),
        )
        self.distributions.append(one)

    def _last(self, **changed: Any) -> None:
        self.distributions[-1] = msgspec.structs.replace(self.distributions[-1], **changed)

    def _add(self, field: str, value: object) -> None:
        self._last(**{field: (*(getattr(self.distributions[-1], field) or ()), value)})

    def on_requires(self, *words: str) -> None:
        self._add("requires", requirement(" ".join(words), self.interpreter.markers))

    def on_requires_python(self, specifier: str) -> None:
        self._last(requires_python=specifier)

    def on_generated_by(self, version: str) -> None:
        self._last(generated_by=version)

    def on_missing(self, path: str) -> None:
        self._add("missing", f"{SITE}/{path}")

    def on_damaged(self, path: str, kind: Any) -> None:
        self._add("damaged", Damage(path=f"{SITE}/{path}", kind=kind, recorded=100, size=50, native=".so" in path))

    def on_shadow(self, module: str, found: str, installed: str, source: Any) -> None:
        self._add("shadows", Shadow(module=module, found=found, installed=installed, source=source))

    def on_asked(self, *words: str) -> None:
        found = requirement(" ".join(words), self.interpreter.markers)
        assert found is not None
        self.asked.append(found)

    def on_overlap(self, first: str, second: str, files: str, example: str) -> None:
        versions = {one.name: one.version for one in self.distributions}
        one = Overlap(
            first=first,
            second=second,
            first_version=versions[first],
            second_version=versions[second],
            location=SITE,
            files=int(files),
            example=example,
        )
        self.parts["overlaps"] += (one,)

    def on_library(self, path: str, *words: str) -> None:
        told = dict(zip(words[::2], words[1::2], strict=True))
        self.libraries.append(
            Library(
                path=path,
                distribution=told.get("of"),
                soname=path.rsplit("/", 1)[-1],
                machine=told.get("machine", self.interpreter.machine),
                system=told.get("system", "linux"),
                needed=(),
                needs=(),
                defines=(),
            )
        )

    def _of_library(self, field: str, value: object) -> None:
        last = self.libraries[-1]
        self.libraries[-1] = msgspec.structs.replace(last, **{field: (*(getattr(last, field) or ()), value)})

    def on_needed(self, name: str, *words: str) -> None:
        path = words[0] if len(words) % 2 else None
        told = dict(zip(words[len(words) % 2 :: 2], words[len(words) % 2 + 1 :: 2], strict=True))
        need = Needed(name=name, path=path, by=told.get("by"), otherwise=told.get("otherwise"))
        self._of_library("needed", need)

    def on_runpath(self, folder: str) -> None:
        self._of_library("runpath", folder)

    def on_needs(self, library: str, *versions: str) -> None:
        self._of_library("needs", VersionNeed(library=library, versions=versions))

    def on_defines(self, *versions: str) -> None:
        for version in versions:
            self._of_library("defines", version)

    def on_lacks(self, name: str, *files: str) -> None:
        self._of_library("missing", MissingSymbol(name=name, wanted_of=files))

    def on_tls(self, octets: str) -> None:
        self.libraries[-1] = msgspec.structs.replace(self.libraries[-1], tls_size=int(octets), static_tls=True)

    def on_dll(self, path: str, *words: str) -> None:
        told = dict(zip(words[::2], words[1::2], strict=True))
        self.dlls.append(
            Dll(path=path, distribution=told.get("of"), version=told.get("version"), linker=told.get("linker"))
        )

    def on_dll_imports(self, name: str, *words: str) -> None:
        last = self.dlls[-1]
        self.dlls[-1] = msgspec.structs.replace(last, imports=(*last.imports, _dll_need(name, *words)))

    def on_dll_opens(self, name: str, *words: str) -> None:
        last = self.dlls[-1]
        self.dlls[-1] = msgspec.structs.replace(last, opens=(*last.opens, _dll_need(name, *words)))

    def on_preload(self, entry: str, path: str | None = None) -> None:
        self.parts["preload"] += (Preload(entry=entry, path=path),)

    def on_variable(self, name: str, value: str) -> None:
        self.parts["variables"][name] = value

    def on_limit(self, name: str, value: str) -> None:
        self.parts["limits"][name] = int(value)

    def on_import(self, name: str, outcome: Any, module: str | None = None, seconds: str | None = None) -> None:
        took = float(seconds) if seconds is not None else None
        one = Import(distribution=name, outcome=outcome, module=module, seconds=took, cpu_s=took)
        self.parts["imports"] += (one,)

    def _of_import(self, **changed: Any) -> None:
        *others, last = self.parts["imports"]
        self.parts["imports"] = (*others, msgspec.structs.replace(last, **changed))

    def on_import_how(self, *words: str) -> None:
        self._of_import(how=" ".join(words))

    def on_import_text(self, *words: str) -> None:
        self._of_import(text=" ".join(words))

    def on_import_place(self, path: str) -> None:
        self._of_import(place=path)

    def on_import_rule(self, rule: str, *words: str) -> None:
        self._of_import(rule=rule, summary=" ".join(words))

    def on_op(self, path: str) -> None:
        self.on_library(path)
        self.libraries[-1] = msgspec.structs.replace(self.libraries[-1], is_op=True)
        self.parts["ops"] = (*self.parts.get("ops", ()), Op(path=path, missing=(), unsupported=()))

    def _of_op(self, **changed: Any) -> None:
        *others, last = self.parts["ops"]
        self.parts["ops"] = (*others, msgspec.structs.replace(last, **changed))

    def on_op_lacks(self, *names: str) -> None:
        self._of_op(missing=names)

    def on_op_abseil(self, wanted: str, has: str) -> None:
        self._of_op(wants_abseil=(wanted,), has_abseil=has)

    def on_op_strings(self, wanted: Any, has: Any) -> None:
        self._of_op(wants_strings=wanted, has_strings=has)

    def on_op_needs_cpu(self, feature: str, flag: str, text: str, where: str) -> None:
        self._of_op(unsupported=(CpuNeed(feature=feature, flag=flag, text=text, where=where),))

    def on_op_executable_stack(self) -> None:
        self._of_op(executable_stack=True)

    def on_op_text_relocations(self) -> None:
        self._of_op(text_relocations=True)

    def on_op_unprotected(self, *what: str) -> None:
        self._of_op(unprotected=what)

    def on_binary(self, path: str, stack: str) -> None:
        one = Binary(path=path, functions=2, stack=int(stack), cycles=(), paths=(), wide=())
        self.parts["binaries"] = (*(self.parts["binaries"] or ()), one)

    def _of_binary(self, field: str, one: object) -> None:
        *others, last = self.parts["binaries"]
        changed = msgspec.structs.replace(last, **{field: (*getattr(last, field), one)})
        self.parts["binaries"] = (*others, changed)

    def on_cycle(self, size: str, *words: str) -> None:
        *frames, _, entry = words
        self._of_binary("cycles", CallCycle(bytes=int(size), frames=_frames(frames), entry=entry))

    def on_wide(self, *words: str) -> None:
        self._of_binary("wide", *_frames(words))

    def on_path(self, size: str, *words: str) -> None:
        self._of_binary("paths", CallPath(bytes=int(size), frames=_frames(words)))

    def on_use(self, kind: Any, name: str, *words: str) -> None:
        told: dict[str, Any] = dict(word.split("=", 1) for word in words)
        told |= {key: int(told[key]) for key in ("value", "stack") if key in told}
        one = SourceUse(
            kind=kind, path="/home/u/train.py", line=3, column=1, end_line=3, text=f"{name}(...)", name=name, **told
        )
        self.parts["uses"] = (*self.parts["uses"], one)

    def on_defect(self, rule: str, case: str, function: str, *words: str) -> None:
        told = dict(word.split("=", 1) for word in words)
        numbers = {key: int(value) for key, value in told.items() if value.isdigit()}
        one = CodeDefect(
            rule=rule,
            case=case,
            place=CodePlace(path="/home/u/op.cc", line=3, column=1, end_line=3, text=f"{function}();", role="function"),
            function=function,
            numbers=numbers,
            names={key: value for key, value in told.items() if key not in numbers},
            stack=8 << 20,
        )
        self.parts["code"] = (*self.parts["code"], one)

    def on_mount(self, role: str, path: str, size: str, free: str) -> None:
        self.parts["mounts"] += (Mount(role=role, path=path, size=int(size), free=int(free)),)

    def on_user(self, number: str) -> None:
        self.parts["user"] = int(number)

    def on_machine(self, field: str, value: str) -> None:
        told = int(value) if value.isdigit() else value
        self.parts["machine"] = msgspec.structs.replace(self.parts["machine"], **{field: told})

    def on_group(self, name: str, limit: str, used: str) -> None:
        where = f"/sys/fs/cgroup/{name}"
        self.parts["groups"] += (Limit(name=name, limit=int(limit), used=int(used), where=where),)

    def on_unread(self, variable: str, meant: str) -> None:
        self.parts["unread"] += (UnreadSetting(variable=variable, meant=meant),)

    def on_unread_flag(self, variable: str, flag: str | None = None) -> None:
        self.parts["unread"] += (UnreadSetting(variable=variable, flag=flag, searched=("tensorflow 2.20.0",)),)

    def on_gpu(self, name: str, capability: str | None = None) -> None:
        self.parts["gpus"] += (Gpu(bus="0000:01:00.0", name=name, capability=capability),)

    def on_driver(self, *words: str) -> None:
        told: dict[str, Any] = dict(zip(words[::2], words[1::2], strict=True))
        answer = int(told.pop("answer")) if "answer" in told else None
        nodes = (told.pop("node"),) if "node" in told else ()
        container = told.pop("container", "no") == "yes"
        self.parts["driver"] = CudaDriver(
            **told, told_by="/proc/driver/nvidia/version", nodes=nodes, answer=answer, container=container
        )

    def on_build(self, name: str, cuda: str = "", *architectures: str) -> None:
        one = next(one for one in self.distributions if one.name == name)
        self.cuda.append(
            CudaBuild(
                distribution=name,
                version=one.version,
                cuda=cuda if cuda not in {"", "cpu"} else None,
                told_by=f"{SITE}/{name}/version.py",
                for_cpu=cuda == "cpu",
                architectures=architectures or None,
            )
        )

    def _of_build(self, **changed: Any) -> None:
        self.cuda[-1] = msgspec.structs.replace(self.cuda[-1], **changed)

    def on_loads(self, name: str, *words: str) -> None:
        path = words[0] if len(words) % 2 else None
        told = dict(zip(words[len(words) % 2 :: 2], words[len(words) % 2 + 1 :: 2], strict=True))
        one = CudaLibrary(
            name=name,
            path=path,
            by=told.get("by"),
            asked_by=f"{SITE}/{self.cuda[-1].distribution}/lib.so",
            at_start=told.get("opened") != "yes",
            lies_at=told.get("lies-at"),
        )
        self._of_build(libraries=(*self.cuda[-1].libraries, one))

    def on_cudnn(self, path: str, *words: str) -> None:
        told = dict(zip(words[len(words) % 2 :: 2], words[len(words) % 2 + 1 :: 2], strict=True))
        version = words[0] if len(words) % 2 else None
        self._of_build(cudnn=Cudnn(path=path, version=version, told_by=path, by=told.get("by"), owner=told.get("of")))

    def on_part(self, name: str, path: str | None = None, version: str | None = None) -> None:
        one = self.cuda[-1].cudnn
        assert one is not None
        part = CudnnPart(name=name, path=path, version=version)
        self._of_build(cudnn=msgspec.structs.replace(one, parts=(*one.parts, part)))

    def on_processor(self, *flags: str) -> None:
        self.parts["processor"] = Processor(name="A processor", flags=flags)

    def on_gap(self, part: str, *why: str) -> None:
        self.gaps.append(Gap(part=part.rstrip(":"), why=" ".join(why)))


def _dll_need(name: str, *words: str) -> DllNeed:
    path = words[0] if len(words) % 2 else None
    told = dict(zip(words[len(words) % 2 :: 2], words[len(words) % 2 + 1 :: 2], strict=True))
    functions = tuple(told.get("functions", "").split(",")) if told.get("functions") else ()
    return DllNeed(name=name, path=path, by=told.get("by"), functions=functions)
