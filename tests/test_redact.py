"""What looks like a secret is masked, and what only sounds like one is kept. All secrets here are made up."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy import redact
from necropsy.model import (
    Contradiction,
    CppException,
    Crash,
    Environment,
    Exit,
    Frame,
    Gap,
    Message,
    Process,
    Subject,
    Thread,
)

SECRETS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "sk-" + "a1B2" * 10,
    "sk-ant-" + "a1B2" * 10,
    "hf_" + "a1B2" * 8,
    "AIza" + "a1B2c" * 7,
    "xoxb-" + "123456789012-abcdefABCDEF",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_known_forms_go_wherever_they_stand(secret: str) -> None:
    for text in (
        secret,
        f"loading {secret}.",
        f'"{secret}"',
        f"x={secret};",
        f"--key={secret}",
        f"https://h/?q={secret}",
    ):
        assert secret not in redact.text(text)
        assert secret[8:] not in redact.text(text)
    assert all(secret not in word for word in redact.argv(["python", "x.py", secret]))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("HF_TOKEN=abcdef", "HF_TOKEN=***"),
        ("password: hunter2", "password: ***"),
        ("db_password = 'hunter 2'", "db_password = '***'"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("WANDB_API_KEY=abc python x.py", "WANDB_API_KEY=*** python x.py"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+ghi", "AWS_SECRET_ACCESS_KEY=***"),
        ("Authorization: Bearer abc.def-123456789", "Authorization: ***"),
        ("curl -H bearer 0123456789abcdef", "curl -H bearer ***"),
        ("postgres://me:s3cret@host/db", "postgres://me:***@host/db"),
        ("https://a1B2c3D4a1B2c3D4a1B2@github.com/x", "https://***@github.com/x"),
        ("--auth-token abc --epochs 3", "--auth-token *** --epochs 3"),
        ("?access_token=abc&page=2", "?access_token=***&page=2"),
    ],
)
def test_what_stands_behind_a_telling_name_goes(text: str, masked: str) -> None:
    assert redact.text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "--max-tokens=512",
        "--num_tokens 3",
        "max_new_tokens: 128",
        "pad_token_id = 0",
        "tokens=1024",
        "tokens_per_second: 3.5",
        "loss: 0.25 - accuracy: 0.9",
        "Check failed: d < dims() (3 vs. 2)",
        "https://github.com/tensorflow/tensorflow/issues/1",
        'File "/home/u/secretary.py", line 3, in tokenize',
        "basic block 0x7f0000001000",
        "key: value",
        "tokenizer=gpt2",
        "PATH=/usr/bin",
        "monkey=banana",
        "password=$PASSWORD",
        "free(): invalid pointer",
        "2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:356] x",
        "sk-learn and hf_hub",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert redact.text(text) == text


@pytest.mark.parametrize("prefix", ["AWS_SESSION", "X", "MY_APP", "NEXT", "MAX", "PAD", "N", "SORT", "PRIMARY", "DB2"])
@pytest.mark.parametrize(
    "noun", ["TOKEN", "KEY", "SECRET", "PASS", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD", "CREDENTIALS"]
)
def test_every_variable_of_such_a_name_is_masked(prefix: str, noun: str) -> None:
    name = f"{prefix}_{noun}"
    assert redact.is_secret_name(name)
    assert redact.variables({name: "ab,c;d e)f"}) == {name: "***"}
    assert redact.argv(["env", f"{name}=ab,c;d e)f"]) == ("env", f"{name}=***")
    for text in (f"{name}=abc", f"{name}: abc", f'"{name}": "abc"', f"export {name}='abc d'", f"x {name} = abc"):
        assert "abc" not in redact.text(text), text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://me:p@ss@host/db", "ss"),
        ("redis://:p@s/s#w@host:6379/0", "s/s"),
        ("https://me:pa:ss@word@host/x@y", "word"),
        (r'password="a\"bcd"', "bcd"),
        (r"{\"password\": \"a\\\"bcd\"}", "bcd"),
        ("password='it''s'", "it"),
        ('password="never closed', "never"),
        ("?sv=1&sig=abcdef%3D&se=2", "abcdef"),
        ("X-Amz-Security-Token=abcdef&x=1", "abcdef"),
        ("X-Goog-Signature=abcdef", "abcdef"),
        ("Cookie: a=abcdef; b=ghijkl", "ghijkl"),
        ("< set-cookie: sid=abcdef; Path=/", "abcdef"),
        ("curl -H 'X-Api-Key: abcdef' https://h", "abcdef"),
        ('Authorization: Digest username="u", response="abcdef"', "abcdef"),
        ("proxy-authorization: negotiate abcdef", "abcdef"),
        ("https://discord.com/api/webhooks/123/abcdef", "abcdef"),
        ("https://x.webhook.office.com/webhookb2/abcdef/IncomingWebhook/1", "abcdef"),
        ("https://mattermost.example/hooks/abcdefgh12345678", "abcdefgh"),
        ("a=1 access_token=abcdef,next=2", "abcdef"),
        ("Namespace(token='abcdef', n=1)", "abcdef"),
        ("- name: HF_TOKEN\n  value: abcdef", "abcdef"),
        ("API_KEYS=['abc', 'def']", "def"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEabcdefghijklmnop\n", "abcdef"),
        ("MIIEabcdefghijklmnopqrs\n-----END PRIVATE KEY-----", "abcdef"),
    ],
)
def test_no_spelling_saves_a_secret(text: str, secret: str) -> None:
    masked = redact.text(text)
    assert secret not in masked, masked
    assert redact.text(masked) == masked
    assert masked.count("\n") == text.count("\n")


def test_the_word_behind_a_telling_option_goes() -> None:
    assert redact.argv(["python", "x.py", "--token", "abc", "--max-tokens", "5", "--password=x", "-p", "y"]) == (
        "python",
        "x.py",
        "--token",
        "***",
        "--max-tokens",
        "5",
        "--password=***",
        "-p",
        "y",
    )
    assert redact.argv(["--api-key", "--verbose"]) == ("--api-key", "--verbose")


def test_variables() -> None:
    assert redact.variables({"HF_TOKEN": "a", "HOME": "/root", "API_KEY": "", "OMP_NUM_THREADS": "2"}) == {
        "HF_TOKEN": "***",
        "HOME": "/root",
        "API_KEY": "",
        "OMP_NUM_THREADS": "2",
    }


def test_every_part_of_a_crash_that_the_program_wrote_is_masked() -> None:
    secret = SECRETS[1]
    python = Frame(index=0, kind="python", function="f", locals={"token": "abc", "x": secret, "n": "3"})
    crash = Crash(
        log_tail=f"a\n{secret}\nb",
        messages=(Message(kind="x", text=secret, where="log", fields={"what": secret}),),
        abort_message=secret,
        cpp_exception=CppException(type="E", what=secret),
        environment=Environment(variables={"HF_TOKEN": "abc", "X": secret}),
        threads=(Thread(tid=1, crashed=True, python=(python,)),),
    )
    encoded = msgspec.json.encode(redact.crash(crash)).decode()
    assert secret not in encoded
    assert '"abc"' not in encoded
    assert '"n":"3"' in encoded


def test_the_columns_of_a_source_line_that_was_masked_are_not_known() -> None:
    frame = Frame(index=0, kind="python", source="a.py", line=1, code=f"f('{SECRETS[1]}', g())", columns=(3, 6))
    masked = redact.noun(frame)
    assert masked.code is not None
    assert SECRETS[1] not in masked.code
    assert masked.columns is None
    plain = msgspec.structs.replace(frame, code="f(1, g())", columns=(5, 8))
    assert redact.noun(plain) == plain


def test_what_was_said_of_an_end_is_masked() -> None:
    """It is a line of a log, and holds a command line as often as not."""
    end = Exit(kind="signaled", signal="SIGABRT", text="Aborted  python train.py --api-key hunter2hunter2")
    gap = Gap(part="log", why="cut behind password=hunter2hunter2")
    crash = redact.crash(Crash(exit=end, gaps=(gap,)))
    process = redact.noun(Process(pid=1, exit=end))
    odds = Contradiction(said="--token hunter2hunter2", against="139", right="139", why="token=hunter2hunter2")
    for one in (crash, process, redact.noun(odds)):
        assert "hunter2hunter2" not in repr(one)
        assert "***" in repr(one)


def test_command_lines_of_processes_and_subjects_are_masked() -> None:
    assert redact.noun(Process(pid=1, command=("x", "--token", "abc"))).command == ("x", "--token", "***")
    assert redact.noun(Process(pid=1)).command is None
    assert redact.noun(Subject(kind="process", command=("x", "--token=abc"))).command == ("x", "--token=***")


@given(st.text())
def test_lines_stay_lines(text: str) -> None:
    assert redact.text(text).count("\n") == text.count("\n")


@given(st.text())
def test_masking_twice_changes_nothing(text: str) -> None:
    assert redact.text(redact.text(text)) == redact.text(text)


@pytest.mark.parametrize(
    "piece",
    [
        "token",
        "token=",
        "password: ",
        "a:b@",
        "eyJ",
        "eyJ-",
        "://",
        "-----BEGIN PRIVATE KEY-----",
        "_-",
        "sk-",
        "bearer ",
    ],
)
def test_a_megabyte_of_anything_takes_one_pass(piece: str) -> None:
    # A pattern that looks back and forth over this would not end today.
    redact.text(piece * (1_000_000 // len(piece)))
