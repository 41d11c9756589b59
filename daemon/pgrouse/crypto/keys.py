"""Reads the keys from where the configuration says that they are. Nothing of what is read gets into an error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pgrouse.config.source import ConfigProblems, Problem
from pgrouse.config.crypto import KEY_BYTES, CryptoKey, decoded
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.config.config import Config
    from pgrouse.crypto.cipher import Cipher

COMMAND_S = 10.0
LONGEST_FILE = 4096


def cipher_of(settings: Config, environ: Mapping[str, str] = os.environ) -> Cipher | None:
    """Return the cipher of a configuration; None if it has no `[crypto]`.

    Raises:
        ConfigProblems: keys that cannot be read, each with its place and the mend.
    """
    crypto = settings.crypto
    if crypto.current is None:
        return None
    from pgrouse.crypto.cipher import Cipher  # noqa: PLC0415 - only where it is configured

    keys: dict[str, bytes] = {}
    problems = []
    for name, given in crypto.keys.items():
        try:
            keys[name] = read(given, folder(settings), environ)
        except ConfigError as error:
            problems.append(
                Problem(settings.origin("crypto", "keys", name), f"crypto.keys.{name}", f"key {name}: {error}")
            )
    if problems:
        raise ConfigProblems(problems)
    return Cipher(keys, crypto.current, crypto.topics, accepted(settings))


def cipher_of_file(config: Config | Path | str | None) -> Cipher:
    """Return the cipher of a configuration, or of its file; the usual one unless given.

    Raises:
        ConfigError: it has no `[crypto]`, or a key cannot be read.
    """
    from pgrouse.config.config import Config, load  # noqa: PLC0415 - pydantic takes its time

    settings = config if isinstance(config, Config) else load(None if config is None else Path(config))
    cipher = cipher_of(settings)
    if cipher is None:
        raise ConfigError(f"{settings.path or 'the configuration'} has no [crypto]: add current, topics and keys")
    return cipher


def accepted(settings: Config) -> dict[str, list[str]]:
    """Return which topics take messages of which others: what `crypto.accept` says, and subscriptions through any number of topics."""
    subscriptions = {topic: chosen.subscriptions for topic, chosen in settings.topics.items() if chosen.subscriptions}
    sources: dict[str, list[str]] = {}
    for topic, direct in subscriptions.items():
        found: dict[str, None] = {}
        left = list(direct)
        while left:
            source = left.pop()
            if source not in found:
                found[source] = None
                left += subscriptions.get(source, [])
        sources[topic] = list(found)
    for topic, others in settings.crypto.accept.items():
        sources[topic] = [*sources.get(topic, []), *others]
    return sources


def folder(settings: Config) -> Path:
    """Return what relative paths of keys are relative to."""
    return settings.path.parent if settings.path else Path.cwd()


def read(key: CryptoKey, base: Path, environ: Mapping[str, str] = os.environ) -> bytes:
    """Return one key.

    Raises:
        ConfigError: it is not there, or is no key; says where it was looked for, and nothing of what was found.
    """
    text = _text(key, base, environ)
    found = decoded(text)
    if found is None:
        raise ConfigError(f"{key.place} does not hold {KEY_BYTES} bytes as base64: make a key by `pgrouse crypto key`")
    return found


def _text(key: CryptoKey, base: Path, environ: Mapping[str, str]) -> str:
    if key.env is not None:
        if not environ.get(key.env):
            raise ConfigError(f"{key.place} is not set")
        return environ[key.env]
    return _of_file(key, base / key.file) if key.file is not None else _of_command(key)


def _of_file(key: CryptoKey, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST_FILE).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{key.place} cannot be read ({error.strerror})") from None


def _of_command(key: CryptoKey) -> str:
    try:
        # No input, so that it cannot wait for somebody to type; what it says on the standard error may be a secret.
        done = subprocess.run(  # noqa: S603 - the operator's own
            key.command or [], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{key.place} did not end within {COMMAND_S:.0f} s") from None
    except OSError as error:
        raise ConfigError(f"{key.place} cannot be run ({error.strerror})") from None
    if done.returncode:
        raise ConfigError(f"{key.place} ended with exit code {done.returncode}")
    return done.stdout[:LONGEST_FILE].decode("ascii", "replace")


def weakness(secret: bytes) -> str | None:
    """Return why a key looks as if nobody had drawn it at random; None if it does not."""
    # Of 32 random bytes fewer than 16 kinds are seen once in 10^17 keys, and only printable ones once in 10^13.
    if len(set(secret)) < 16:  # noqa: PLR2004
        return "its bytes repeat"
    if all(32 <= byte < 127 for byte in secret):  # noqa: PLR2004
        return "it is text"
    return None
