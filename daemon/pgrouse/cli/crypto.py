"""`pgrouse crypto`: keys, who still needs them, and how what waits gets under a new one."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import READ_TIMEOUT, Group, Session
from pgrouse.cli.output import Column, plural, show_count
from pgrouse.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from pgrouse.crypto.key_usage import Census
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.crypto.rotation import Rotated

NAMED = 10  # so many ids of messages that no key opens; more help nobody


@click.group(cls=Group)
def crypto() -> None:
    """Make keys, see who needs them, put what waits under a new one."""


@crypto.command()
@click.pass_obj
def key(session: Session) -> None:
    """Print a new key: 32 random bytes as Base64.

    Put it where the configuration shall find it, and nowhere else: whoever has it can read what it encrypts.
    """
    from pgrouse.config.crypto import KEY_BYTES  # noqa: PLC0415

    made = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    if session.as_json:
        session.output.record({"key": made})
    session.output.say(made)


@crypto.command()
@click.option(
    "--most",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Look at so many messages, and dead ones.",
)
@click.pass_obj
def check(session: Session, most: int) -> int:
    """Say of each key how many messages need it.

    Exit code 1 if a message needs a key that is not configured here. A key that none needs any more can be removed, unless backups or the
    archive shall still be read with it.
    """
    from pgrouse.crypto import key_usage as census  # noqa: PLC0415

    cipher = _cipher(session)
    with session.connect() as conn, conn.transaction():
        conn.execute(b"SET TRANSACTION READ ONLY")
        conn.execute(READ_TIMEOUT)
        taken = census.take(conn, most)
    rows = _rows(cipher, taken)
    session.output.rows(_columns(taken), rows, "no keys")
    missing = [row for row in rows if not row["configured"]]
    for row in missing:
        session.output.problem(
            f"key {row['key']} is needed and not configured here: its messages wait, add it to crypto.keys"
        )
    if not (taken.saw_all and taken.saw_all_dead):
        session.output.note(f"not all was looked at: --most {10 * most}")
    return ExitCode.FOUND_A_PROBLEM if missing else ExitCode.OK


@crypto.command()
@click.option("--topic", help="Only of this topic.")
@click.option(
    "--dead", "dead_letters", is_flag=True, help="Also the copies of dead messages in topics that end with .dlq."
)
@click.pass_obj
def rotate(session: Session, topic: str | None, dead_letters: bool) -> int:
    """Put the messages that wait under the current key.

    Batch by batch, while daemons work. What runs is left, and found by the next run; what ended is never rewritten.
    Exit code 1 if some cannot be decrypted with the keys that are here.
    """
    from pgrouse.cli.bulk import BATCH, show_progress  # noqa: PLC0415
    from pgrouse.crypto.rotation import Rotated  # noqa: PLC0415
    from pgrouse.crypto.rotation import rotate as batches  # noqa: PLC0415

    cipher, rotated = _cipher(session), Rotated()
    with session.connect() as conn, show_progress("re-encrypting", BATCH + 1) as progress:
        try:
            for batch in batches(conn, cipher, topic, dead_letters=dead_letters):
                rotated.add(batch)
                progress.expect(batch.done)
                progress.advance(batch.done)
        except BaseException:
            session.output.problem(
                f"{plural(rotated.done, 'message')} are under key {cipher.current}; the next run goes on"
            )
            raise
    return _tell(session, cipher, rotated)


def _cipher(session: Session) -> Cipher:
    from pgrouse.crypto.keys import cipher_of  # noqa: PLC0415

    cipher = cipher_of(session.config)
    if cipher is None:
        raise ConfigError("there is no [crypto] in the configuration: docs/reference/encryption.md tells how to begin")
    return cipher


def _rows(cipher: Cipher, taken: Census) -> list[dict[str, Any]]:
    """Return the keys that are here, the current one first, and behind them those that only messages name."""
    found = []
    for name in sorted(cipher.names, key=lambda each: (each != cipher.current, each)):
        need = taken.needs.pop((name, cipher.fingerprint(name)), None)
        counts = {each: getattr(need, each, 0) for each in ("waiting", "running", "dead")}
        found.append({"key": name, "current": name == cipher.current, "configured": True, **counts})
    for need in taken.needs.values():
        counts = {"waiting": need.waiting, "running": need.running, "dead": need.dead}
        found.append({"key": need.key, "current": False, "configured": False, **counts})
    return found


def _columns(taken: Census) -> list[Column]:
    waiting = show_count(2**63 if taken.saw_all else 0)
    dead = show_count(2**63 if taken.saw_all_dead else 0)
    return [
        Column("KEY", "key", wide=True),
        Column("HERE", "configured", lambda here: "yes" if here else "no", style=lambda here: "" if here else "red"),
        Column("CURRENT", "current", lambda is_current: "yes" if is_current else "no"),
        Column("WAITING", "waiting", waiting, right=True),
        Column("RUNNING", "running", waiting, right=True),
        Column("DEAD", "dead", dead, right=True),
    ]


def _tell(session: Session, cipher: Cipher, rotated: Rotated) -> int:
    if session.as_json:
        counts = {"key": cipher.current, "rotated": rotated.done, "left": rotated.left}
        session.output.record({**counts, "missing": dict(rotated.missing), "broken": rotated.broken})
    session.output.say(f"{plural(rotated.done, 'message')} put under key {cipher.current}")
    if rotated.left:
        session.output.note(
            f"{plural(rotated.left, 'message')} left alone, since they run: run it again when they have ended"
        )
    for name, count in rotated.missing.items():
        session.output.problem(
            f"{plural(count, 'message')} under key {name}, which is not configured here: add it to crypto.keys"
        )
    if rotated.broken:
        some = ", ".join(map(str, rotated.broken[:NAMED]))
        session.output.problem(
            f"{plural(len(rotated.broken), 'message')} cannot be decrypted, something changed them: {some}"
        )
    return ExitCode.FOUND_A_PROBLEM if rotated.missing or rotated.broken else ExitCode.OK
