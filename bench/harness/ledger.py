"""Compares the tables of pgrouse with what its publishers recorded: each message is there once, and has succeeded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

# Batches by their publisher and number: how many messages are there, different ones, completed ones and dead ones.
FOUND = """
    SELECT
      p.payload ->> 'run', (p.payload ->> 'batch')::integer, count(*), count(DISTINCT p.payload ->> 'n'),
      count(*) FILTER (WHERE p.result = 'success'), count(*) FILTER (WHERE p.result <> 'success')
    FROM (
      SELECT m.payload, NULL FROM messages.message AS m
      UNION ALL
      SELECT a.payload, a.result::text FROM messages.message_archive AS a
    ) AS p (payload, result)
    GROUP BY 1, 2
"""
LEFT = "SELECT count(*) FROM messages.message"
Batch = tuple[str, int]


@dataclass(frozen=True)
class Check:
    """What became of the published messages.

    Attributes:
        published: how many were published, for certain.
        completed: how many are in the archive as a success.
        dead: how many are in the archive with another result.
        lost: how many are in no table.
        twice: how many are there more than once.
    """

    published: int
    completed: int
    dead: int
    lost: int
    twice: int

    @property
    def is_exact(self) -> bool:
        """Whether each message was completed exactly once."""
        return self.published == self.completed and not self.lost and not self.twice

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.completed:,} once each"
        return f"{self.completed:,} of {self.published:,}, {self.dead:,} dead, {self.lost:,} lost, {self.twice:,} twice"


def check(conn: psycopg.Connection[Any], folder: Path) -> Check:
    """Compare the tables with the ledgers in a folder.

    A batch whose publisher did not learn the end of its transaction may be there or not, as a whole.
    """
    sizes, ended = _read(folder)
    published = completed = dead = lost = twice = 0
    found: dict[Batch, list[int]] = {(run, batch): counts for run, batch, *counts in conn.execute(FOUND)}
    for batch, size in sizes.items():
        rows, different, succeeded, failed = found.pop(batch, [0, 0, 0, 0])
        expected = size if batch in ended or different else 0
        published += expected
        completed += succeeded
        dead += failed
        lost += expected - different
        twice += rows - different
    # What no publisher has begun cannot be there.
    return Check(published, completed, dead, lost, twice + sum(counts[0] for counts in found.values()))


def _read(folder: Path) -> tuple[dict[Batch, int], set[Batch]]:
    """Return the sizes of the batches that were begun, and those that ended."""
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    sizes = {(line[1], int(line[2])): int(line[3]) for line in lines if line[0] == "begin"}
    return sizes, {(line[1], int(line[2])) for line in lines if line[0] == "end"}
