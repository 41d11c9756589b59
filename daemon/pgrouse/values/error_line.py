"""The line that names an error, and the kept part of a long error.

The rules are those of messages.error_line and messages.cut_error, for texts that are shown.

In a Python traceback this is the line after the last frame; in any other text the first line.
"""

from __future__ import annotations

import re

BLANK = " \n\r\t"
ERROR_BYTES = 8192  # the CHECK of messages.message_archive
# If a text is longer, only its two ends are read.
READ = 8192
_RULES = (re.compile(r"^ *\| ", re.MULTILINE), re.compile(r"^ *\+[-+ 0-9]*$\n?", re.MULTILINE))


def error_line(error: str) -> str:
    """Return the line of an error that names it.

    In a traceback it is the exception, without the frames and without further lines of its message.
    """
    text = (error if len(error) <= READ else error[: READ // 2] + error[-(READ // 2) :]).strip(BLANK)
    if " Exception Group Traceback " in text:
        for rule in _RULES:
            text = rule.sub("", text)
    lines = text.split("\n")
    frames = [nth for nth, line in enumerate(lines) if line.startswith('  File "')]
    return _behind(lines, frames) or _first(lines)


def last_line(error: str, characters: int = 200) -> str:
    """Return the line that names an error, shortened; empty if there is none."""
    return error_line(error)[:characters]


def cut(error: str, characters: int) -> str:
    """Return the end of an error, where a traceback has its exception.

    If the end lacks the line that names the error, that line comes first.
    """
    if len(error) <= characters:
        return error
    line = error_line(error)
    end = "..." + error[len(error) - characters + 3 :]
    if error_line(end) == line:
        return end
    line = line[: characters // 2]
    return f"{line}\n...\n{error[len(error) - (characters - 5 - len(line)) :]}"


def to_storable_text(text: str) -> str:
    """Return the text without what PostgreSQL cannot store, at most ERROR_BYTES of it; the end if it is longer."""
    data = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    return data[-ERROR_BYTES:].decode("utf-8", "ignore")


def _behind(lines: list[str], frames: list[int]) -> str | None:
    """Return the first line after the last frame that is followed by a line without indentation."""
    for frame in reversed(frames):
        behind = frame + 1
        while behind < len(lines) and lines[behind][:1] in (" ", "\t"):
            behind += 1
        if behind < len(lines) and lines[behind]:
            return lines[behind]
        # Everything is indented: use the last line, unless it is the frame.
        if behind - 1 > frame:
            return lines[behind - 1]
    return None


def _first(lines: list[str]) -> str:
    """Return the first line; if there is the head of a traceback, the line after it."""
    if lines[0].startswith("Traceback"):
        behind = 1
        while behind < len(lines) and lines[behind][:1] in (" ", "\t"):
            behind += 1
        if behind < len(lines):
            return lines[behind]
    return lines[0]
