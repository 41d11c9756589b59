"""The characters that a name may have.

None of them is invisible, because with these two different names can look alike.
"""

from __future__ import annotations

import re

# As in sql/values/is_printable.sql: Unicode's categories Cc, Cf, Zl and Zp, and its default ignorable characters. For a
# class of `re`.
INVISIBLE = (
    r"\x00\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2"
    r"\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# The same for RE2, which has no \\u.
RE2 = re.sub(r"\\[uU]([0-9a-f]+)", r"\\x{\1}", INVISIBLE)
_FOUND = re.compile(f"[{INVISIBLE}]")


def printable(name: str) -> str:
    """Return a name unchanged.

    Raises:
        ValueError: it has an invisible character.
    """
    if found := _FOUND.search(name):
        raise ValueError(
            f"must have printable characters only, and character {found.start() + 1} is U+{ord(found[0]):04X}"
        )
    return name
