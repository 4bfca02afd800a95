"""Rebuild ``src/necropsy/data/strsignal.json``: how shells spell signals in the languages of glibc.

    python scripts/rebuild_strsignal.py /usr/share/locale > src/necropsy/data/strsignal.json

The folder holds ``LANGUAGE/LC_MESSAGES/libc.mo``, as Debian's package libc-l10n installs it. What is kept of the
translations are names of a word or two.
"""

import gettext
import json
import sys
from pathlib import Path

SIGNALS = {
    "SIGSEGV": "Segmentation fault",
    "SIGABRT": "Aborted",
    "SIGKILL": "Killed",
    "SIGBUS": "Bus error",
    "SIGILL": "Illegal instruction",
    "SIGFPE": "Floating point exception",
    "SIGTRAP": "Trace/breakpoint trap",
    "SIGSYS": "Bad system call",
    "SIGTERM": "Terminated",
}
"""glibc's own English words, by which its catalogues are searched."""


def catalogue(path: Path) -> gettext.NullTranslations:
    """The translations in a ``.mo`` file, or none where there is no such file."""
    if not path.exists():
        return gettext.NullTranslations()
    with path.open("rb") as file:
        return gettext.GNUTranslations(file)


def main(folder: Path) -> None:
    """Print the table."""
    signals: dict[str, dict[str, list[str]]] = {name: {} for name in SIGNALS}
    for path in sorted(folder.glob("*/LC_MESSAGES/libc.mo")):
        language = path.parent.parent.name
        libc = catalogue(path)
        for name, english in SIGNALS.items():
            translated = libc.gettext(english)
            if translated != english:
                signals[name].setdefault(translated, []).append(language)
    table = {
        "_source": "glibc 2.36 (Debian libc-l10n), made by scripts/rebuild_strsignal.py",
        "signals": {
            name: {word: " ".join(languages) for word, languages in words.items()} for name, words in signals.items()
        },
    }
    json.dump(table, sys.stdout, ensure_ascii=False, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
