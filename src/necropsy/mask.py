"""Secrets stay where they are: what looks like one is masked before anything is judged, written or printed.

A crash report is made to be shown to others, and a command line, a log or an environment often holds a token. What is
masked is what has the form of a secret (vendors' documented prefixes) or stands behind a name that says so. A secret
with neither cannot be told from any other word: reports are written for their owner's eyes only (mode 0600) besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from necropsy.model import Contradiction, Crash, Document, Exit, Frame, Message, Process, Subject, Thread

MASK = "***"

# A name is looked at when it is short enough to be one, so that no pattern below can take more than one pass.
_SECRET_NAME = re.compile(
    r"(?i)[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_.-]?key|access[_.-]?key|private[_.-]?key|auth[_.-]?key|"
    r"account[_.-]?key|credentials?|webhook)[\w.-]*|(?:[\w.-]*[_.-])?(?:pwd|pat|passwd|authorization)"
)
_LONGEST_NAME = 96
# Words that hold such a name and are no secret: counts and lengths of a language model's tokens, files and switches.
_HARMLESS = re.compile(
    r"(?i)(?:num|max|min|n|total|new|vocab|pad|eos|bos|unk|sep|cls|mask|count|per|special)[_.-]?tokens?(?![a-z])"
    r"|tokens?[_.-]?(?:id|ids|per|count|len|length|limit|type|types|size|s?_?per\w*)(?![a-z])|tokeniz|detokeniz"
    r"|(?:^|[_.-])tokens$"
)
_NAMED = re.compile(
    rf"(?<![\w.-])(?P<name>[\w.-]{{1,{_LONGEST_NAME}}})(?:[\"']?[^\S\n]{{0,3}}[=:][^\S\n]{{0,3}})"
    rf"|(?<!\S)(?P<option>--?[\w.-]{{1,{_LONGEST_NAME}}})[^\S\n]{{1,3}}(?=[^\s-])"
)
_VALUE = re.compile(
    r"\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}'|(?i:bearer|basic)[^\S\n]+[^\s\"',;]{1,4096}|[^\s\"',;&)\]}]{1,4096}"
)
_FORMS = tuple(
    re.compile(form)
    for form in (
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",  # AWS access key ids
        r"\bgh[pousr]_[A-Za-z0-9]{20,255}",  # GitHub
        r"\bgithub_pat_[A-Za-z0-9_]{20,255}",
        r"\bglpat-[A-Za-z0-9_-]{20,255}",  # GitLab
        r"\bsk-[A-Za-z0-9_-]{16,255}",  # OpenAI, Anthropic and those who copied the form
        r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}",  # Stripe
        r"\bhf_[A-Za-z0-9]{16,255}",  # Hugging Face
        r"\bAIza[A-Za-z0-9_-]{35}",  # Google API keys
        r"\bya29\.[A-Za-z0-9._-]{20,2048}",  # Google OAuth
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}",  # Slack
        r"\bpypi-[A-Za-z0-9_-]{16,1024}",
        r"\bnpm_[A-Za-z0-9]{36}",
        r"\bdop_v1_[a-f0-9]{64}",
        r"(?<![\w.-])eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{0,4096}",  # JSON Web Tokens
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?",
    )
)
_BEARER = re.compile(
    r"(?i)\b(?P<scheme>bearer|basic)\s+(?=[^\s\"',;]{0,255}[0-9=])(?P<value>[A-Za-z0-9._~+/-]{12,4096}=*)"
)
_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]{0,30}://)(?P<user>[^\s:/@]{0,256}):(?P<value>[^\s/@]{1,1024})@")
_URL_TOKEN = re.compile(r"(?P<scheme>https?://)(?P<value>[A-Za-z0-9_-]{20,1024})@")
_ANY = re.compile(
    r"(?i)passw|passphrase|secret|token|key|credential|webhook|pwd|pat|authoriz|bearer|basic|://"
    r"|AKIA|ASIA|ABIA|ACCA|gh[pousr]_|glpat-|sk-|[sr]k_|hf_|AIza|ya29|xox|pypi-|npm_|dop_|eyJ"
)


def text(value: str) -> str:
    """The same text with everything that looks like a secret replaced by ``***``; line structure is kept."""
    if not _ANY.search(value):
        return value
    for form in _FORMS:
        value = form.sub(lambda match: match.group()[:4] + MASK + "\n" * match.group().count("\n"), value)
    value = _URL.sub(rf"\g<scheme>\g<user>:{MASK}@", value)
    value = _URL_TOKEN.sub(rf"\g<scheme>{MASK}@", value)
    value = _mask_named(value)
    return _BEARER.sub(rf"\g<scheme> {MASK}", value)


def _mask_named(whole: str) -> str:
    """What stands behind ``password=``, ``"api_key":`` or ``--token``."""
    pieces, done = [], 0
    for match in _NAMED.finditer(whole):
        if match.start() < done or not is_secret_name(match["name"] or match["option"]):
            continue
        value = _VALUE.match(whole, match.end())
        # A variable's name ($TOKEN) and a placeholder (<token>) are no secrets.
        if value is None or value.group().startswith(("$", "<")):
            continue
        quote = value.group()[0] if value.group()[0] in "\"'" else ""
        pieces += [whole[done : match.end()], quote, MASK, quote]
        done = value.end()
    return "".join((*pieces, whole[done:])) if pieces else whole


def is_secret_name(name: str) -> bool:
    """A variable or an option of this name holds a secret: ``HF_TOKEN`` does, ``--max-tokens`` does not."""
    name = name.lstrip("-")
    return len(name) <= _LONGEST_NAME and _SECRET_NAME.fullmatch(name) is not None and not _HARMLESS.search(name)


def argv(words: Sequence[str]) -> tuple[str, ...]:
    """A command line; also the word behind an option whose name says that it is a secret."""
    masked: list[str] = []
    behind_secret = False
    for word in words:
        if behind_secret and not word.startswith("--"):
            masked.append(MASK)
            behind_secret = False
            continue
        behind_secret = word.startswith("-") and is_secret_name(word)
        masked.append(text(word))
    return tuple(masked)


def variables(values: Mapping[str, str]) -> dict[str, str]:
    """Names and their values, as of an environment or of a frame's locals."""
    return {name: MASK if value and is_secret_name(name) else text(value) for name, value in values.items()}


# ---------------------------------------------------------------- nouns


def process(one: Process) -> Process:
    """A process, its command line masked, and what was said of its end."""
    command = argv(one.command) if one.command is not None else None
    return msgspec.structs.replace(one, command=command, exit=_exit(one.exit))


def subject(one: Subject) -> Subject:
    """A subject, its command line and text masked."""
    return msgspec.structs.replace(
        one,
        command=argv(one.command) if one.command is not None else None,
        text=text(one.text) if one.text is not None else None,
    )


def crash(one: Crash) -> Crash:
    """A crash with every text that came from the program masked; what is concluded from it is masked by that."""
    replace = msgspec.structs.replace
    if one.cpp_exception is not None and one.cpp_exception.what is not None:
        one = replace(one, cpp_exception=replace(one.cpp_exception, what=text(one.cpp_exception.what)))
    if one.environment is not None and one.environment.variables is not None:
        one = replace(one, environment=replace(one.environment, variables=variables(one.environment.variables)))
    return replace(
        one,
        exit=_exit(one.exit),
        gaps=tuple(replace(gap, why=text(gap.why)) for gap in one.gaps),
        log_tail=text(one.log_tail) if one.log_tail is not None else None,
        abort_message=text(one.abort_message) if one.abort_message is not None else None,
        messages=tuple(map(_message, one.messages)) if one.messages is not None else None,
        threads=tuple(map(_thread, one.threads)) if one.threads is not None else None,
    )


def contradiction(one: Contradiction) -> Contradiction:
    """Two inputs that cannot both be true, what is quoted of them masked."""
    right = text(one.right) if one.right is not None else None
    return msgspec.structs.replace(one, said=text(one.said), against=text(one.against), right=right, why=text(one.why))


def document(one: Document) -> Document:
    """A document whose subject and processes are masked; its crashes are masked before they are judged."""
    return msgspec.structs.replace(one, subject=subject(one.subject), processes=tuple(map(process, one.processes)))


def _exit(one: Exit | None) -> Exit | None:
    """How it ended; the words that said so are a line of a log, a command line in it maybe."""
    return msgspec.structs.replace(one, text=text(one.text)) if one is not None and one.text is not None else one


def _message(one: Message) -> Message:
    fields = {name: text(value) for name, value in one.fields.items()}
    return msgspec.structs.replace(one, text=text(one.text), fields=fields)


def _thread(one: Thread) -> Thread:
    if not any(frame.locals for frame in one.python or ()):
        return one
    return msgspec.structs.replace(one, python=tuple(map(_frame, one.python or ())))


def _frame(one: Frame) -> Frame:
    return msgspec.structs.replace(one, locals=variables(one.locals)) if one.locals else one
