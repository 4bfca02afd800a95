"""A program that dies with secrets in its arguments, its environment, its output and its memory: nothing kept shows them.

The whole of `necropsy run` does it, and every format of the report, what is kept of it and the step summary of GitHub
are searched. All secrets are made up.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc"), reason="needs Linux and gcc, to build a program that crashes"
)

CRASHER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int die(char **words, int count, const char *environment) {
    char copy[8192] = "";                      /* on the stack, which the small core keeps */
    for (int at = 1; at < count; at++) {
        strncat(copy, words[at], 600);
        strcat(copy, " ");
    }
    strncat(copy, environment, 900);
    fprintf(stderr, "started with %s\n", copy);
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {  /* nobody knows these from arguments or environment */
        fputs(line, stderr);
        strncat(copy, line, 700);
    }
    fprintf(stderr, "%d bytes\n", (int)strlen(copy));
    if (getenv("SAY_AND_ABORT")) {
        fprintf(stderr, "crasher: bad.c:12: die: Assertion `%s' failed.\n", words[1]);
        abort();
    }
    volatile int *nowhere = NULL;
    return *nowhere + copy[0];
}

int main(int count, char **words) {
    const char *environment = getenv("AWS_SESSION_TOKEN");
    return die(words, count, environment ? environment : "");
}
"""

ARGUMENTS = {
    "--password": "qwArgPasswordOne1",
    "--db-url": "postgres://me:qwArg@Url/Two2@db.example/x",
    "--header": "Authorization: Basic cXdBcmdCYXNpY1RocmVlMw==",
    "--api_key": "qwArgKeyFour4",
    "--callback": "https://hooks.slack.com/services/T00/B00/qwArgHookFive5qwArgHookFive5",
}
ENVIRONMENT = {
    "AWS_SESSION_TOKEN": "qwEnvSessionSix6//+=qwEnvSessionSix6",
    "MY_SERVICE_KEY": "qwEnvKeySeven7",
    "SMTP_PASS": "qwEnvPassEight8",
    "APP_CREDENTIALS": "qwEnvCredentialsNine9",
    "OMP_DISPLAY_ENV": "sk-" + "qwEnvFormTen10qwEnvFormTen10",
    "TF_CPP_VMODULE": "token=qwEnvEleven11",
}
OUTPUT = [
    ("password: 'qwOut\\'Quoted Twelve12'", ["Twelve12", "qwOut"]),
    ('{"client_secret": "qwOut\\"Thirteen13", "n": 1}', ["Thirteen13", "qwOut"]),
    ("GET https://b.s3.amazonaws.com/k?X-Amz-Signature=qwoutfourteen14&x=1", ["qwoutfourteen14"]),
    ("https://a.blob.core.windows.net/c?sv=2020&sig=qwOutFifteen15%3D", ["qwOutFifteen15"]),
    ("Set-Cookie: session=qwOutSixteen16; Path=/", ["qwOutSixteen16"]),
    ("ghp_" + "qwOutSeventeen17qwOutSeventeen17qwOut", ["Seventeen17"]),
    ("Authorization: Bearer qwOutEighteen18.qwOutEighteen18", ["Eighteen18"]),
    ("eyJhbGciOiJIUzI1NiJ9.eyJxd091dE5pbmV0ZWVuMTkiOjF9.qwOutNineteen19", ["qwOutNineteen19"]),
    ("DB_PASSWORD=qwOut,Twenty;20)x", ["qwOut,", "20)x"]),
    ("-----BEGIN RSA PRIVATE KEY-----", []),
    ("MIIEqwOutTwentyOne21qwOutTwentyOne21qwOutTwentyOne21", ["TwentyOne21"]),
    ("-----END RSA PRIVATE KEY-----", []),
    ("::error::qwNotASecret", []),
    ("\x1b]0;title\x07 \u202eevil\u0085 \x9b31m ##[add-mask]x ##vso[task.setvariable]x", []),
]
SECRETS = [
    *(part for value in ARGUMENTS.values() for part in re.findall(r"qwArg\w+", value)),
    "Url/Two2",
    "cXdBcmdCYXNpY1RocmVlMw",
    *(part for value in ENVIRONMENT.values() for part in re.findall(r"qwEnv\w+", value)),
    *(part for _, parts in OUTPUT for part in parts),
]


@pytest.fixture(scope="module")
def crasher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crasher")
    (folder / "bad.c").write_text(CRASHER)
    subprocess.run(["gcc", "-w", "-g", "-o", str(folder / "bad"), str(folder / "bad.c")], check=True)
    return folder / "bad"


def necropsy(*words: str, env: dict[str, str], log: Path | None = None, given: str = "") -> tuple[int, str]:
    """stdout of a command of necropsy's; with ``log``, stderr goes there."""
    with (log or Path(os.devnull)).open("ab") as errors:
        done = subprocess.run(
            [sys.executable, "-m", "necropsy", *words],
            env=env,
            input=given.encode(),
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=120,
            check=False,
        )
    return done.returncode, done.stdout.decode("utf-8")


@pytest.mark.parametrize("abort", [False, True])
def test_no_output_shows_a_secret(crasher: Path, tmp_path: Path, abort: bool) -> None:
    log, summary, kept = tmp_path / "log", tmp_path / "summary.md", tmp_path / "kept"
    summary.write_text("")
    actions = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    env = {**os.environ, **ENVIRONMENT, **actions, "NECROPSY_OUTPUT": str(kept)}
    env |= {"SAY_AND_ABORT": "1"} if abort else {}
    words = [word for pair in ARGUMENTS.items() for word in pair] + ["sk_live_" + "qwArgForm" * 4]
    given = "".join(f"{line}\n" for line, _ in OUTPUT)
    code, _ = necropsy(
        "run", "--json", str(tmp_path / "run.json"), "--output", str(tmp_path / "out"), "--", str(crasher), *words,
        env=env, log=log, given=given,
    )  # fmt: skip
    assert code == (-6 if abort else -11)
    said = log.read_bytes().decode("utf-8", "surrogateescape")
    own = said[said.index("necropsy:") :]
    assert any(secret in said[: said.index("necropsy:")] for secret in SECRETS), "the program did print them"

    reader = {name: value for name, value in env.items() if name not in ENVIRONMENT}
    found = {"the text": own, "the step summary": summary.read_text(), "--json": (tmp_path / "run.json").read_text()}
    for path in (tmp_path / "out").rglob("*.*"):
        found[path.name] = path.read_text()
    for form in ("text", "json", "markdown", "html"):
        code, shown = necropsy("show", "--format", form, env=reader)
        assert code == 0
        found[f"show {form}"] = shown
    _, found["list"] = necropsy("list", env=reader)
    _, found["explain"] = necropsy("explain", str(log), env=reader)
    core = tmp_path / "core"
    assert necropsy("show", "--core", str(core), env=reader)[0] == 0
    _, found["open"] = necropsy("open", str(core), env=reader)
    assert all(found.values())
    for name, text in found.items():
        assert_harmless(name, text)
    data = core.read_bytes()
    assert b"bytes" in data or b"started with" in data, "the stack is in it"
    for secret in (*SECRETS, "qwArgForm"):
        at = data.find(secret.encode())
        assert at < 0, (secret, data[max(0, at - 40) : at + 20])


def assert_harmless(name: str, text: str) -> None:
    for secret in (*SECRETS, "qwArgForm"):
        assert secret not in text, (name, secret, text[max(0, text.index(secret) - 200) :][:400])
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", text), name
    ours = "::error title=" if name == "the text" else None
    for line in text.splitlines():
        if ours is None or not line.startswith(ours):
            assert not line.lstrip().startswith("::"), (name, line)
        assert "##[" not in line, (name, line)
        assert "##vso[" not in line, (name, line)
