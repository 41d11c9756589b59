"""What names an error, and what is kept of a long one: the rules of messages.error_line and messages.cut_error, for texts that are shown.

In a Python traceback the line after the last frame counts; in any other text the first one.
"""

from __future__ import annotations

import re

BLANK = " \n\r\t"
ERROR_BYTES = 8192  # the CHECK of messages.message_archive
# Of a longer text both ends are read.
READ = 8192
_RULES = (re.compile(r"^ *\| ", re.MULTILINE), re.compile(r"^ *\+[-+ 0-9]*$\n?", re.MULTILINE))


def error_line(error: str) -> str:
    """Return the line of an error that names it: of a traceback the exception, not the frames and not what its message adds."""
    text = (error if len(error) <= READ else error[: READ // 2] + error[-(READ // 2) :]).strip(BLANK)
    if " Exception Group Traceback " in text:
        for rule in _RULES:
            text = rule.sub("", text)
    lines = text.split("\n")
    frames = [nth for nth, line in enumerate(lines) if line.startswith('  File "')]
    return _behind(lines, frames) or _first(lines)


def last_line(error: str, characters: int = 200) -> str:
    """Return the line that names an error, cut; empty if there is none."""
    return error_line(error)[:characters]


def cut(error: str, characters: int) -> str:
    """Return the end of an error, where a traceback has its exception; before it the line that names it, if the end does not."""
    if len(error) <= characters:
        return error
    line = error_line(error)
    end = "..." + error[len(error) - characters + 3 :]
    if error_line(end) == line:
        return end
    line = line[: characters // 2]
    return f"{line}\n...\n{error[len(error) - (characters - 5 - len(line)) :]}"


def to_storable_text(text: str) -> str:
    """Return the text without what PostgreSQL cannot store, at most ERROR_BYTES of it; of a long one the end."""
    data = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    return data[-ERROR_BYTES:].decode("utf-8", "ignore")


def _behind(lines: list[str], frames: list[int]) -> str | None:
    """Return the first line behind the last frame that has any that is not indented."""
    for frame in reversed(frames):
        behind = frame + 1
        while behind < len(lines) and lines[behind][:1] in (" ", "\t"):
            behind += 1
        if behind < len(lines) and lines[behind]:
            return lines[behind]
        # All of it is indented: the last line, unless that is the frame itself.
        if behind - 1 > frame:
            return lines[behind - 1]
    return None


def _first(lines: list[str]) -> str:
    """Return the first line; behind the head of a traceback, if there is one."""
    if lines[0].startswith("Traceback"):
        behind = 1
        while behind < len(lines) and lines[behind][:1] in (" ", "\t"):
            behind += 1
        if behind < len(lines):
            return lines[behind]
    return lines[0]
