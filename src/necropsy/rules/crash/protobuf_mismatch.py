"""Two versions of protobuf do not fit together.

What happened
-------------
The Python code that protobuf generated, the protobuf package that is installed, or two C++ copies of protobuf in the same process are of
versions that exclude each other. Protobuf notices it and raises an exception, or aborts.

How to be sure
--------------
``Descriptors cannot be created directly`` (generated code from before 3.20 with protobuf 4 and later), ``Detected mismatched Protobuf
Gencode/Runtime version``, ``This program was compiled against version`` or ``File already exists in database`` (two C++ copies registered
the same file).

How to fix it now
-----------------
Install the protobuf that the package asks for: ``pip install 'protobuf<3.21'`` for TensorFlow 2.0 to 2.9.0 and code of that age, or
generate the code anew. ``pip check`` names who asks for what. For two C++ copies: one of the wheels exports its symbols; import order and
``RTLD_LOCAL`` decide, newer wheels hide them.

How to prevent it
-----------------
Pin protobuf; never mix conda's and pip's.

What it is often mistaken for
-----------------------------
A bug in TensorFlow: it is the combination of packages.

Sources
-------
- https://protobuf.dev/news/2022-05-06/#python-updates
- https://protobuf.dev/support/cross-version-runtime-guarantee/
"""

from __future__ import annotations

from necropsy.model import Crash, Fix
from necropsy.questions import died_by, messages, quote
from necropsy.rule import Finding, Rule
from necropsy.rules.python import exit_evidence
from necropsy.rules.told import teller, told_of_the_end


def _match(crash: Crash) -> Finding | None:
    found = messages(crash, "protobuf-mismatch")
    if not found:
        return None
    message = found[-1]
    confidence = told_of_the_end(crash, message)
    if confidence is None:
        return None
    installed = (crash.libraries or {}).get("protobuf")
    if "file" in message.fields and "already exists" in message.text:
        summary = f"Two copies of protobuf's C++ runtime met in this process: `{message.fields['file']}` was registered twice."
    else:
        summary = f"Code that was generated for another version of protobuf met the one that is installed{f' ({installed})' if installed else ''}."
    return Finding(
        evidence=(quote(message, "protobuf's own words"), *died_by(crash, "SIGABRT"), *exit_evidence(crash)),
        summary=summary,
        confidence=confidence,
        culprit=teller(crash),
        fixes=(
            Fix(text="See who asks for which version.", command="pip check; pip show protobuf tensorflow"),
            Fix(text="Install the version that the older package asks for.", command="pip install 'protobuf<3.21'"),
        ),
    )


RULE = Rule(
    name="protobuf-mismatch",
    subject=Crash,
    title="Two versions of protobuf do not fit together",
    match=_match,
    page=__doc__ or "",
    needs=("messages",),
    beats=(
        "python-exception",
        "exit-status-only",
        "abort",
        "check-failed",
        "uncaught-cpp-exception",
        "killed-by-signal",
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
    references=("https://protobuf.dev/news/2022-05-06/#python-updates",),
)
