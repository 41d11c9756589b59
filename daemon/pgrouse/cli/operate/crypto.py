"""`pgrouse crypto`: make keys, see which are needed, rotate them."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

import click

from pgrouse.client.encryption import key_rotation as rotation
from pgrouse.client.encryption import key_usage
from pgrouse.client.encryption.key_rotation import RotationResult
from pgrouse.client.encryption.key_usage import KeyUsage
from pgrouse.client.redrive import BATCH
from pgrouse.config.crypto import KEY_BYTES
from pgrouse.crypto.configured_cipher import load_cipher
from pgrouse.errors import ConfigError, ExitCode
from pgrouse.terminal.bulk import show_progress
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, CommandGroup
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural, show_count

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

NAMED = 10  # how many ids of broken messages are shown


@click.group(cls=CommandGroup)
def crypto() -> None:
    """Make keys, see which are needed, rotate them."""


@crypto.command()
@click.pass_obj
def key(session: CliSession) -> None:
    """Print a new key: 32 random bytes as Base64.

    Store it only in the place that the configuration names: anyone who has it can read the messages that it encrypts.
    """
    made = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    session.done(made, key=made)


@crypto.command()
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="How many messages to read that have not ended, the oldest first, and how many dead ones.",
)
@click.pass_obj
def check(session: CliSession, limit: int) -> int:
    """Show how many messages need each key.

    Exit code 1 if a message needs a key that is not configured here. A key that no message needs can be removed, unless
    backups or the archive must still be read.
    """
    cipher = _cipher(session)
    with session.connect() as conn, conn.transaction():
        conn.execute(b"SET TRANSACTION READ ONLY")
        conn.execute(READ_TIMEOUT)
        usage = key_usage.read_key_usage(conn, limit)
    rows = _rows(cipher, usage)
    session.rows(_columns(usage), rows, "no keys")
    missing = [row for row in rows if not row["configured"]]
    for row in missing:
        session.problem(f"key {row['key']} is needed and not configured here: its messages wait, add it to crypto.keys")
    if not (usage.saw_all and usage.saw_all_dead):
        session.note(f"not all messages were read: --limit {10 * limit}")
    return ExitCode.FOUND_A_PROBLEM if missing else ExitCode.OK


@crypto.command()
@click.option("--topic", help="Only this topic.")
@click.option(
    "--dead", "dead_letters", is_flag=True, help="Also the copies of dead messages in topics that end with .dlq."
)
@click.pass_obj
def rotate(session: CliSession, topic: str | None, dead_letters: bool) -> int:
    """Encrypt waiting messages again under the current key.

    In batches, while daemons work. Running messages are left for the next run; ended ones are never rewritten.
    Exit code 1 if some cannot be decrypted with the keys that are here.
    """
    cipher, rotated = _cipher(session), RotationResult()
    with session.connect() as conn, show_progress("re-encrypting", BATCH + 1) as progress:
        try:
            for batch in rotation.rotate(conn, cipher, topic, dead_letters=dead_letters):
                rotated.add(batch)
                progress.expect(batch.done)
                progress.advance(batch.done)
        except BaseException:
            session.problem(f"{plural(rotated.done, 'message')} are under key {cipher.current}; the next run goes on")
            raise
    return _print_result(session, cipher, rotated)


def _cipher(session: CliSession) -> Cipher:
    cipher = load_cipher(session.config)
    if cipher is None:
        raise ConfigError("there is no [crypto] in the configuration: see docs/reference/encryption.md")
    return cipher


def _rows(cipher: Cipher, usage: KeyUsage) -> list[dict[str, Any]]:
    """Return the configured keys, the current one first, then those that only messages name."""
    found = []
    for name in sorted(cipher.names, key=lambda each: (each != cipher.current, each)):
        use = usage.uses.pop((name, cipher.fingerprint(name)), None)
        counts = {each: getattr(use, each, 0) for each in ("waiting", "running", "dead")}
        found.append({"key": name, "current": name == cipher.current, "configured": True, **counts})
    for use in usage.uses.values():
        counts = {"waiting": use.waiting, "running": use.running, "dead": use.dead}
        found.append({"key": use.key, "current": False, "configured": False, **counts})
    return found


def _columns(usage: KeyUsage) -> list[Column]:
    waiting = show_count(2**63 if usage.saw_all else 0)
    dead = show_count(2**63 if usage.saw_all_dead else 0)
    return [
        Column("KEY", "key", wide=True),
        Column("HERE", "configured", lambda here: "yes" if here else "no", style=lambda here: "" if here else "red"),
        Column("CURRENT", "current", lambda is_current: "yes" if is_current else "no"),
        Column("WAITING", "waiting", waiting, right=True),
        Column("RUNNING", "running", waiting, right=True),
        Column("DEAD", "dead", dead, right=True),
    ]


def _print_result(session: CliSession, cipher: Cipher, rotated: RotationResult) -> int:
    counts = {"key": cipher.current, "rotated": rotated.done, "skipped": rotated.left}
    session.record({**counts, "missing": dict(rotated.missing), "broken": rotated.broken})
    session.say(f"{plural(rotated.done, 'message')} encrypted under key {cipher.current}")
    if rotated.left:
        session.note(f"{plural(rotated.left, 'message')} left alone, since they run: run it again when they have ended")
    for name, count in rotated.missing.items():
        session.problem(
            f"{plural(count, 'message')} under key {name}, which is not configured here: add it to crypto.keys"
        )
    if rotated.broken:
        some = ", ".join(map(str, rotated.broken[:NAMED]))
        session.problem(f"{plural(len(rotated.broken), 'message')} cannot be decrypted, they were changed: {some}")
    return ExitCode.FOUND_A_PROBLEM if rotated.missing or rotated.broken else ExitCode.OK
