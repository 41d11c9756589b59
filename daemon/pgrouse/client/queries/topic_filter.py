"""Which topics a query reads: names, patterns, and beginnings of names that end with `*`."""

from __future__ import annotations

from collections.abc import Sequence

# It compares the column {0} with the argument `topics`, as `messages.topic_matches` does.
WANTED = (
    "({0} OPERATOR(pg_catalog.=) ANY (%(topics)s::pg_catalog.text[])"
    " OR {0} OPERATOR(pg_catalog.~) ANY ((SELECT messages.topic_regexps(%(topics)s))::pg_catalog.text[]))"
)
# The same, where None stands for all topics.
VISIBLE = f"(%(topics)s::pg_catalog.text[] IS NULL OR {WANTED})"


def as_array(topics: Sequence[str] | None) -> list[str] | None:
    """Return topics as psycopg sends an array; none of them are an empty array, which fits nothing."""
    return None if topics is None else list(topics)
