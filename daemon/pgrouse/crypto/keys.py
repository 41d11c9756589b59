"""Reads the keys that the configuration names. Errors never show a key."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pgrouse.config.config import Config
from pgrouse.config.crypto import KEY_BYTES, CryptoKey, decode_key
from pgrouse.config.source import ConfigProblem, ConfigProblems
from pgrouse.errors import ConfigError

COMMAND_S = 10.0
LONGEST_FILE = 4096


def read_keys(settings: Config, environ: Mapping[str, str] = os.environ) -> dict[str, bytes]:
    """Return the keys of a configuration, by name.

    Raises:
        ConfigProblems: keys that cannot be read, each with its place in the configuration and the fix.
    """
    keys: dict[str, bytes] = {}
    problems = []
    for name, given in settings.crypto.keys.items():
        try:
            keys[name] = read_key(given, key_folder(settings), environ)
        except ConfigError as error:
            problems.append(
                ConfigProblem(settings.origin("crypto", "keys", name), f"crypto.keys.{name}", f"key {name}: {error}")
            )
    if problems:
        raise ConfigProblems(problems)
    return keys


def accepted_topics(settings: Config) -> dict[str, list[str]]:
    """Return which topics accept messages of which other topics.

    They do by `crypto.accept_from`, and by direct or indirect subscriptions.
    """
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
    for topic, others in settings.crypto.accept_from.items():
        sources[topic] = [*sources.get(topic, []), *others]
    return sources


def key_folder(settings: Config) -> Path:
    """Return the folder that relative paths of keys are relative to."""
    return settings.path.parent if settings.path else Path.cwd()


def read_key(key: CryptoKey, base: Path, environ: Mapping[str, str] = os.environ) -> bytes:
    """Return one key.

    Raises:
        ConfigError: it does not exist, or is not a key; the text names the place and never shows the value.
    """
    text = _text(key, base, environ)
    found = decode_key(text)
    if found is None:
        raise ConfigError(f"{key.source} does not hold {KEY_BYTES} bytes as base64: make a key by `pgrouse crypto key`")
    return found


def _text(key: CryptoKey, base: Path, environ: Mapping[str, str]) -> str:
    if key.env is not None:
        if not environ.get(key.env):
            raise ConfigError(f"{key.source} is not set")
        return environ[key.env]
    return _of_file(key, base / key.file) if key.file is not None else _of_command(key)


def _of_file(key: CryptoKey, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST_FILE).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(f"{key.source} cannot be read ({error.strerror})") from None


def _of_command(key: CryptoKey) -> str:
    try:
        # The program gets no input, so that it cannot wait for a prompt. Its standard error may hold a secret.
        done = subprocess.run(  # noqa: S603 - the operator's own
            key.command or [], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{key.source} did not end within {COMMAND_S:.0f} s") from None
    except OSError as error:
        raise ConfigError(f"{key.source} cannot be run ({error.strerror})") from None
    if done.returncode:
        raise ConfigError(f"{key.source} ended with exit code {done.returncode}")
    return done.stdout[:LONGEST_FILE].decode("ascii", "replace")


def weak_key_reason(secret: bytes) -> str | None:
    """Return why a key does not look random; None if it does."""
    # 32 random bytes have fewer than 16 different values once in 10^17 keys, and only printable ones once in 10^13.
    if len(set(secret)) < 16:  # noqa: PLR2004
        return "its bytes repeat"
    if all(32 <= byte < 127 for byte in secret):  # noqa: PLR2004
        return "it is text"
    return None
