"""Whether the keys of `[crypto]` are there and good, and whether what waits can be decrypted by them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgrouse.crypto import keys

from pgrouse.crypto import key_usage as census
from pgrouse.doctor.finding import Finding, fail, ok, warn
from pgrouse.doctor.target import Subject
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.config.crypto import CryptoKey

# So many messages are looked at: those that have waited longest.
MOST = 10_000
NEW_KEY = "make another by `pgrouse crypto key`, make it current, and run `pgrouse crypto rotate`"
SUBSCRIPTIONS = "SELECT s.topic::text, s.subscriber::text FROM messages.subscription AS s ORDER BY 1, 2 LIMIT 10000"


def look_at_keys(subject: Subject) -> Iterator[Finding]:
    """Say which keys cannot be read, or are worse than keys should be."""
    settings = subject.settings
    found = [each for name, key in settings.crypto.keys.items() for each in _look_at(subject, name, key)]
    yield from found
    if not found and settings.crypto.current is None:
        yield ok("crypto_keys", "nothing is encrypted: there is no [crypto]")
    elif not found:
        yield ok("crypto_keys", f"{len(settings.crypto.keys)} keys, {settings.crypto.current} encrypts")


def _look_at(subject: Subject, name: str, key: CryptoKey) -> Iterator[Finding]:
    folder = keys.folder(subject.settings)
    try:
        weakness = keys.weakness(keys.read(key, folder))
    except ConfigError as error:
        yield fail(
            "crypto_keys", f"key {name}: {error}", "put it there: a daemon with this configuration does not start"
        )
        return
    if weakness:
        yield warn("crypto_keys", f"key {name} was not drawn at random: {weakness}", NEW_KEY)
    if (
        key.file is not None
        and stat.S_IMODE((folder / key.file).stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP
    ):
        yield warn("crypto_keys", f"key {name}: others may use {key.place}", f"chmod 0400 {folder / key.file}")


def look_at_needs(subject: Subject) -> Iterator[Finding]:
    """Say what waits for a key that is not here, and which subscribers get what they will not take."""
    cipher = _cipher(subject)
    with subject.reading() as conn:
        taken = census.take(conn, MOST)
        subscriptions = conn.execute(SUBSCRIPTIONS).fetchall() if cipher is not None else []
    found = [
        fail(
            "crypto_needed",
            f"key {need.key} is not here: {_at_least(need.waiting, taken)} in need of it",
            _mend(need, cipher),
        )
        for need in taken.needs.values()
        if need.waiting and (cipher is None or not cipher.knows(need.key, need.fingerprint))
    ]
    yield from found
    for topic, subscriber in subscriptions:
        if cipher is not None and cipher.covers(topic) and not cipher.accepts(topic, subscriber):
            what = f"{subscriber} subscribes to {topic}, which is encrypted, and its workers will reject what they get"
            found.append(warn("crypto_needed", what, f'crypto.accept = {{ "{subscriber}" = ["{topic}"] }}'))
            yield found[-1]
    if not found:
        yield ok("crypto_needed", "every key that a waiting message needs is here")


def _cipher(subject: Subject) -> Cipher | None:
    try:
        return keys.cipher_of(subject.settings)
    except ConfigError:
        # crypto_keys says so.
        return None


def _at_least(count: int, taken: census.Census) -> str:
    noun = "message" if count == 1 else "messages"
    return f"{count:,} {noun}" if taken.saw_all else f"at least {count:,} {noun}"


def _mend(need: census.Need, cipher: Cipher | None) -> str:
    if cipher is not None and need.key in cipher.names:
        return f"another key has the name {need.key} here: configure the right one under it, then restart or reload the daemons"
    return f'configure it, [crypto.keys."{need.key}"], where the daemons run, and restart or reload them; messages.cancel ends what nobody can read'
