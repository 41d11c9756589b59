"""Every error of pgrouse. Each says what is wrong, where, and how to mend it; `exit_code` is what the command line ends with."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command of pgrouse ends."""

    OK = 0
    FOUND_A_PROBLEM = 1
    USAGE = 2
    DATABASE_UNREACHABLE = 69
    TRY_AGAIN = 75
    BAD_CONFIG = 78
    INTERRUPTED = 130


class PgrouseError(Exception):
    """Base of every error that pgrouse raises on purpose."""

    exit_code = ExitCode.FOUND_A_PROBLEM


class ConfigError(PgrouseError):
    """The configuration cannot be used."""

    exit_code = ExitCode.BAD_CONFIG


class DatabaseUnreachable(PgrouseError):
    """No connection to PostgreSQL could be made."""

    exit_code = ExitCode.DATABASE_UNREACHABLE


class SchemaMismatch(PgrouseError):
    """The database's schema is not the one that this version works with."""

    exit_code = ExitCode.BAD_CONFIG


class MigrationEdited(PgrouseError):
    """A migration that was applied has another text now."""

    exit_code = ExitCode.BAD_CONFIG


class PublishRefused(PgrouseError, ValueError):
    """A message cannot be published as it is; nothing was inserted."""


class LockLost(PgrouseError):
    """The message is not this worker's any more: its lock expired, or it was cancelled. What was settled was not changed."""
