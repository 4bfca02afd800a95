"""Two versions of protobuf do not fit together.

What happened
-------------
The Python code that protobuf generated, the protobuf package that is installed, or two C++ copies of protobuf in the
same process are of versions that exclude each other. Protobuf notices it and raises an exception, or aborts.

How to be sure
--------------
``Descriptors cannot be created directly`` (generated code from before 3.20 with protobuf 4 and later), ``Detected
mismatched Protobuf Gencode/Runtime version``, ``This program was compiled against version`` or ``File already exists
in database`` (two C++ copies registered the same file).

How to fix it now
-----------------
Install the protobuf that the package requires; ``pip check`` lists the requirements. ``Descriptors cannot be created
directly``: ``pip install 'protobuf<3.21'`` (TensorFlow 2.0 to 2.9.0). ``cannot import name 'builder'``: ``pip install
-U 'protobuf>=3.20'``. ``'MessageFactory' object has no attribute 'GetPrototype'``: ``pip install 'protobuf<5'``. Or
generate the code anew. For two C++ copies: one of the wheels exports its symbols; import order decides, newer wheels
hide them, so update all.

How to prevent it
-----------------
Pin protobuf; never mix conda's and pip's packages that bring it.

What it is often mistaken for
-----------------------------
A bug in TensorFlow: it is the combination of packages. A missing file: the module is there, of another version.

Sources
-------
- https://protobuf.dev/news/2022-05-06/#python-updates
- https://protobuf.dev/support/cross-version-runtime-guarantee/
"""

from __future__ import annotations

from necropsy.model import Crash, Fix, Message
from necropsy.predicates import died_by, messages, quote
from necropsy.rule import Finding, Rule, Tried
from necropsy.rules import compatibility, quoting
from necropsy.rules.exit_causes import GIVEN_UP
from necropsy.rules.log_rules import teller, told_of_the_end
from necropsy.rules.python import exit_evidence


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "protobuf-mismatch")
    if not found:
        return None
    graded = [(one, grade) for one in found if (grade := told_of_the_end(crash, one)) is not None]
    if not graded:
        return None
    confidence = min((grade for _, grade in graded), key=("certain", "likely", "possible").index)
    # The file that is named says most; what protobuf says after it follows from it.
    message = next((one for one, _ in graded if "file" in one.fields), graded[-1][0])
    installed = (crash.libraries or {}).get("protobuf")
    twice = "file" in message.fields and "already exists" in message.text
    if twice:
        summary = f"Two copies of protobuf's C++ runtime met in this process: `{message.fields['file']}` was registered twice."
    elif "CHECK failed" in message.text:
        summary = "Two copies or versions of protobuf's C++ runtime met in this process, and one failed its own check."
    else:
        summary = f"Code that was generated for another version of protobuf met the one that is installed{f' ({installed})' if installed else ''}."
    return Finding(
        evidence=(quote(message, "protobuf's own message"), *died_by(crash, "SIGABRT"), *exit_evidence(crash)),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=_fixes(crash, message),
    )


_SEE = Fix(text="See which package requires which version.", command="pip check; pip show protobuf tensorflow")


def _fixes(crash: Crash, message: Message) -> tuple[Fix, ...]:
    if "already exists" in message.text or "CHECK failed" in message.text:
        return (
            Fix(
                text="Keep one copy of protobuf's C++ runtime: newer versions of the packages hide theirs, so update them, and take all from one source.",
                command="pip install -U tensorflow onnx protobuf",
            ),
            Fix(text="As a workaround, import the packages in another order, or only one of them in a process."),
            _SEE,
        )
    if "wanted" in message.fields:
        # Generated code checks the runtime's version since protobuf 5.26, which brought the module for it.
        return (
            Fix(
                text="The code was generated for protobuf 5.26 or newer, and the one that is installed is older: install a newer one.",
                command="pip install -U 'protobuf>=5.26'",
            ),
            Fix(
                text="If another package needs the older protobuf (pip check says so), generate the code again with protoc 25 or older."
            ),
            _SEE,
        )
    tensorflow = (crash.libraries or {}).get("tensorflow")
    asked = compatibility.needs_of_tensorflow(tensorflow, "protobuf") if tensorflow else None
    if asked is not None:
        return (
            Fix(
                text=f"Install what TensorFlow {tensorflow} requires.",
                command=f"pip install {quoting.posix(f'protobuf{asked}', 'protobuf')}",
            ),
            _SEE,
        )
    if "module" in message.fields or "_internal_create_key" in message.text:
        newer = Fix(
            text="The code was generated for a newer protobuf: install that.", command="pip install -U 'protobuf>=3.20'"
        )
        return (newer, _SEE)
    if "GetPrototype" in message.text:
        older = Fix(
            text="The package was made for an older protobuf (TensorFlow 2.12 to 2.17: below 5).",
            command="pip install 'protobuf<5'",
        )
        return (older, _SEE)
    if "Gencode/Runtime" in message.text:
        newer = Fix(
            text="The generated code requires a newer protobuf than the installed one.",
            command="pip install -U protobuf",
        )
        return (newer, _SEE)
    return (
        Fix(
            text="Install the version that the older package requires (TensorFlow 2.0 to 2.9.0, and code generated before 3.20).",
            command="pip install 'protobuf<3.21'",
        ),
        _SEE,
    )


RULE = Rule(
    _match,
    needs=("messages",),
    beats=GIVEN_UP,
    tried=Tried(
        advice="Install the version that the older package requires.",
        result="crash gone",
        how=(
            "By hand on 22 November 2026 (CPython 3.11.7, glibc 2.36), with googleapis-common-protos 1.52.0 "
            "on protobuf 5.29.3: after the printed ``pip install 'protobuf<3.21'`` it was imported."
        ),
    ),
    hit="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log TypeError: Descriptors cannot be created directly.
    """,
    miss="""
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 4, in <module>
        log TypeError: Parameter to MergeFrom() must be instance of same class
    """,
)
