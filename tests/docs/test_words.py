"""The project uses common words: private ones stay out of code, messages and docs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
COVERED = (
    *("daemon", "sql", "pipeline", "docs", "deploy", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *(
        f"tests/{each}"
        for each in ("sql", "schema", "security", "cron", "model", "models", "faults", "server", "drivers")
    ),
)
# os_user.py names the user `nobody` of the machine.
LEFT_OUT = ("daemon/pgrouse/web/static/vendor/", "daemon/pgrouse/devdb/os_user.py")

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
WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(sorted(INSTEAD, key=len, reverse=True))})(?![\w-])", re.IGNORECASE)


def covered() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *COVERED], cwd=ROOT, check=True, capture_output=True, text=True)
    names = [each for each in listed.stdout.split("\0") if each and not each.startswith(LEFT_OUT)]
    return [path for name in names if (path := ROOT / name).is_file()]


def found_in(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, 1):
        for match in WORD.finditer(line):
            word = match[0]
            yield f"use {INSTEAD[word.lower()]!r} instead of {word!r}: {path.relative_to(ROOT)}:{number}"


def test_private_words_stay_out() -> None:
    found = [each for path in covered() for each in found_in(path)]

    assert found == [], "\n".join(found)
