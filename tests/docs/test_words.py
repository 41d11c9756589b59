"""The project uses common words: private ones stay out of code, messages and docs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
COVERED = (
    *("daemon", "sql", "pipeline", "docs", "bench", "deploy", "examples"),
    *("README.md", "CONTRIBUTING.md", "tests"),
)
LEFT_OUT = (
    "daemon/pgrouse/web/static/vendor/",
    "tests/deploy/schemas/",
    "tests/docs/test_words.py",
    # These name the user `nobody` of the machine.
    *("daemon/pgrouse/devdb/os_user.py", "tests/devdb/test_devdb.py"),
)

# Whole words, in either case; a dash stands for how they are inflected.
INSTEAD = {
    "anew": "again",
    "census": "key usage",
    "crew": "executor",
    "deaf": "not listening",
    "doorkeeper": "authenticator",
    "ear": "listener",
    "hears": "receives",
    "in hand": "in flight",
    "in_hand": "in_flight",
    "keyring": "token cache",
    "knob": "policy setting",
    "knobs": "policy settings",
    "lane": "claim loop, or claim connection",
    "lanes": "claim loops, or claim connections",
    "mend": "fix",
    "mended": "fixed",
    "mending": "fixing",
    "mends": "fixes",
    "nobody": "no one, no worker, no session",
    "portrait": "view",
    "put aside": "abandoned",
    "seals": "message crypto",
    "shall": "should, must or will",
    "whoever": "anyone who",
}
WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(INSTEAD, key=len, reverse=True))})(?![\w-])")

# Phrases that readers of plain English stumble over, each with what to write.
PHRASES = {
    r"\bfor ever\b": "without end, or forever",
    r"\bg[ia]v(?:e|es|en|ing) back\b": "release, or return",
    r"\bmeanwhile\b": "in the meantime, or during something",
    r"\bso many\b": "this many, or the maximum number of",
    r"\bof ours\b": "of pgrouse",
    r"\bbesides\b": "in addition to, except, or also",
    r"\bat most so\b": "at most this many",
    r"\bworks (?:(?:a|an|the|its|their|one|no) )?(?:messages?|tasks?)\b": "processes",
    r"\b(?:are|be|being|is|was|were) (?:not )?worked\b": "processed",
}
# What a phrase may have instead of a space: the end of a line, and the beginning of the next line of a comment.
SPACE = r"\s+(?:(?:--|#|//)\s+)?"
# A comment or a docstring whose first word is no subject: `Of each topic so many`, `Who has none may not`.
NO_SUBJECT = re.compile(
    r"(?:(?<!#)# |\"\"\"|-- |// )(?:Of (?:a|an|the|each|these|those|one)|So many|Who|Without any)\b(?!.*\?)"
)
# A comment of SQL, usually a head, that begins with a part of a sentence: `Whether a topic has a policy`.
CLAUSE = re.compile(r"\s*-- (?:What|Which|Whether|How|Whose|Not|Else|Of|So)\b")
CODE = (".py", ".sql", ".js", ".sh", ".toml", ".yaml", ".service", ".timer")


@cache
def texts() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files", "-z", *COVERED], cwd=ROOT, check=True, capture_output=True, text=True)
    names = [each for each in listed.stdout.split("\0") if each and not each.startswith(LEFT_OUT)]
    return {name: text for name in names if (text := text_of(ROOT / name))}


@cache
def small_letters() -> dict[str, str]:
    return {name: text.lower() for name, text in texts().items()}


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        return ""


def places(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the text of each match, in small letters, and where it is."""
    for name, text in small_letters().items():
        for match in pattern.finditer(text):
            yield match[0], f"{name}:{text.count(chr(10), 0, match.start()) + 1}"


def test_private_words_stay_out() -> None:
    found = [f"use {INSTEAD[word]!r} instead of {word!r}: {place}" for word, place in places(WORD)]

    assert found == [], "\n".join(found)


def test_unclear_phrases_stay_out() -> None:
    found = [
        f"write {instead!r} instead of {words!r}: {place}"
        for phrase, instead in PHRASES.items()
        for words, place in places(re.compile(phrase.replace(" ", SPACE)))
    ]

    assert found == [], "\n".join(found)


def test_comments_begin_with_a_subject_or_a_verb() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts().items()
        if name.endswith(CODE)
        for number, line in enumerate(text.splitlines(), 1)
        if NO_SUBJECT.search(line)
    ]

    assert found == [], "\n".join(found)


def test_comments_of_sql_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts().items()
        if name.endswith(".sql")
        for number, (before, line) in enumerate(pairwise(("", *text.splitlines())), 1)
        if CLAUSE.match(line) and not before.lstrip().startswith("--")
    ]

    assert found == [], "\n".join(found)
