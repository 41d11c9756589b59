"""Fixtures for the tests of the configuration."""

from tests.server.emptied import database, emptied

__all__ = ["database", "emptied"]
