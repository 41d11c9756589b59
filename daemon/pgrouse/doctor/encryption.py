"""Checks whether the keys of `[crypto]` exist and are strong, and decrypt the waiting messages."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pgrouse.client.call import run
from pgrouse.client.encryption import key_usage
from pgrouse.client.queries.topic import find_subscriptions
from pgrouse.crypto import keys
from pgrouse.crypto.configured_cipher import load_cipher
from pgrouse.doctor.finding import Finding, fail, ok, warn
from pgrouse.doctor.target import DoctorTarget
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.config.crypto import CryptoKey
    from pgrouse.crypto.cipher import Cipher

# How many messages are checked: those that have waited longest.
MAX_MESSAGES = 10_000
NEW_KEY = "make another by `pgrouse crypto key`, make it current, and run `pgrouse crypto rotate`"
MAX_SUBSCRIPTIONS = 10_000


def check_keys(target: DoctorTarget) -> Iterator[Finding]:
    """Report keys that cannot be read or are weak."""
    settings = target.settings
    found = [each for name, key in settings.crypto.keys.items() for each in _check_key(target, name, key)]
    yield from found
    if not found and settings.crypto.current is None:
        yield ok("crypto_keys", "nothing is encrypted: there is no [crypto]")
    elif not found:
        yield ok("crypto_keys", f"{len(settings.crypto.keys)} keys, {settings.crypto.current} encrypts")


def _check_key(target: DoctorTarget, name: str, key: CryptoKey) -> Iterator[Finding]:
    folder = keys.key_folder(target.settings)
    try:
        weak_reason = keys.weak_key_reason(keys.read_key(key, folder))
    except ConfigError as error:
        yield fail("crypto_keys", f"key {name}: {error}", "provide it: a daemon with this configuration does not start")
        return
    if weak_reason:
        yield warn("crypto_keys", f"key {name} is not random: {weak_reason}", NEW_KEY)
    if (
        key.file is not None
        and stat.S_IMODE((folder / key.file).stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP
    ):
        yield warn("crypto_keys", f"key {name}: other users can read {key.source}", f"chmod 0400 {folder / key.file}")


def check_needed_keys(target: DoctorTarget) -> Iterator[Finding]:
    """Report messages that wait for a missing key, and subscribers that reject encrypted messages."""
    cipher = _cipher(target)
    with target.reading() as conn:
        usage = key_usage.read_key_usage(conn, MAX_MESSAGES)
        subscriptions = run(conn, find_subscriptions(most=MAX_SUBSCRIPTIONS)) if cipher is not None else []
    found = [
        fail(
            "crypto_needed",
            f"key {use.key} is not configured here: {_at_least(use.waiting, usage)} wait for it",
            _fix(use, cipher),
        )
        for use in usage.uses.values()
        if use.waiting and (cipher is None or not cipher.has_key(use.key, use.fingerprint))
    ]
    yield from found
    for topic, subscriber in ((each.topic, each.subscriber) for each in subscriptions):
        if cipher is not None and cipher.covers(topic) and not cipher.accepts(topic, subscriber):
            what = f"{subscriber} subscribes to {topic}, which is encrypted, and its workers reject the messages"
            found.append(warn("crypto_needed", what, f'crypto.accept_from = {{ "{subscriber}" = ["{topic}"] }}'))
            yield found[-1]
    if not found:
        yield ok("crypto_needed", "every key that a waiting message needs is configured here")


def _cipher(target: DoctorTarget) -> Cipher | None:
    try:
        return load_cipher(target.settings)
    except ConfigError:
        # The check crypto_keys reports it.
        return None


def _at_least(count: int, usage: key_usage.KeyUsage) -> str:
    noun = "message" if count == 1 else "messages"
    return f"{count:,} {noun}" if usage.saw_all else f"at least {count:,} {noun}"


def _fix(use: key_usage.KeyUse, cipher: Cipher | None) -> str:
    if cipher is not None and use.key in cipher.names:
        return (
            f"another key has the name {use.key} here: configure the right one under this name, "
            "then restart or reload the daemons"
        )
    return (
        f'configure it, [crypto.keys."{use.key}"], where the daemons run, and restart or reload them; '
        "messages.cancel ends messages whose key is lost"
    )
