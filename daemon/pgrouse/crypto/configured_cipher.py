"""The cipher of a configuration, if it has one."""

from __future__ import annotations

from pgrouse.config.config import Config
from pgrouse.crypto.cipher import Cipher


def load_cipher(settings: Config) -> Cipher | None:
    """Return the cipher of a configuration; None if it has no `[crypto]`.

    Raises:
        ConfigProblems: keys that cannot be read, each with its place in the configuration and the fix.
    """
    return None if settings.crypto.current is None else require_cipher(settings)


def require_cipher(settings: Config) -> Cipher:
    """Return the cipher of a configuration.

    Raises:
        ConfigError: it has no `[crypto]`, or a key cannot be read.
    """
    return Cipher.from_config(settings)
