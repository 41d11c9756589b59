"""The participants of a comparison, and those that cannot take part, with the reason."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
from bench.peers.environment import Unavailable, command
from bench.peers.peer import PEERS, PGROUSE, Peer
from bench.peers.run import Entrant, PeerFailed
from bench.postgres import Database

FAILURES = (PeerFailed, subprocess.TimeoutExpired, json.JSONDecodeError, psycopg.Error)
# A peer's name, and what distinguishes several values of it, such as its settings.
Key = tuple[str, str]


@dataclass
class Field:
    """The peers that could be installed.

    Attributes:
        entrants: pgrouse and the installed peers.
        out: peers that cannot take part, or no longer, with the reason.
    """

    entrants: list[Entrant] = field(default_factory=list)
    out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def install(cls, say: Callable[[str], object], peers: list[Peer] = PEERS) -> Field:
        """Install the peers; report those that are skipped."""
        made = cls([Entrant(PGROUSE, command(PGROUSE))])
        for peer in peers:
            try:
                made.entrants.append(Entrant(peer, command(peer)))
            except Unavailable as error:
                made.out[f"{peer.name} {peer.version}"] = str(error)
                say(f"without {peer.name}: {error}")
        return made

    def enter(self, ends: ExitStack, entrant: Entrant, manager: AbstractContextManager[Database]) -> Database | None:
        """Enter a context that prepares a peer. If this fails, the peer is out, and None is returned."""
        try:
            return ends.enter_context(manager)
        except FAILURES as error:
            self.drop(entrant, entrant.peer.name, error)
            return None

    def drop(self, entrant: Entrant, name: str, error: Exception) -> None:
        """Record why a peer is out; pgrouse itself must not fail."""
        if not entrant.peer.package:
            raise error
        self.out[name] = f"{type(error).__name__}: {error}".splitlines()[0]

    @property
    def notes(self) -> list[str]:
        """The versions, and the peers that are out."""
        versions = [f"{each.peer.name} {each.peer.version}" for each in self.entrants if each.peer is not PGROUSE]
        return [f"Versions: {', '.join(versions)}.", *(f"Without {name}: {why}." for name, why in self.out.items())]


class Rounds:
    """The values of a comparison, by round, of the peers that completed all rounds."""

    def __init__(self, among: Field, rounds: int) -> None:
        self._field = among
        self._rounds = rounds
        self._values: dict[Key, list[Any]] = defaultdict(list)

    def attempt(self, entrant: Entrant, key: Key, action: Callable[[], Any]) -> None:
        """Record the result of the action. If it fails, the peer is out, with the reason."""
        name = ", ".join(filter(None, key))
        if name in self._field.out:
            return
        try:
            self._values[key].append(action())
        except FAILURES as error:
            self._field.drop(entrant, name, error)

    def complete(self) -> dict[Key, list[Any]]:
        """Return the values of the peers that have one for each round."""
        return {key: values for key, values in self._values.items() if len(values) == self._rounds}
