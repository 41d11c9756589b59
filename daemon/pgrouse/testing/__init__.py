"""Test your own handlers and publishers, on a real PostgreSQL: no fake queue, no daemon, no waiting.

`published` and `assert_published` look at published messages; `perform` calls one handler, without a queue; `drain`
processes the ready messages until none is left; `at` sets the time of the queue; `database` creates a database for a
test session, `template` one that is copied for each test, and `clean` empties the queue.
"""

from pgrouse.testing.attempt import Attempt
from pgrouse.testing.clean import clean
from pgrouse.testing.clock import at
from pgrouse.testing.database_url import DatabaseUrl
from pgrouse.testing.drain import drain
from pgrouse.testing.perform import perform
from pgrouse.testing.published import assert_not_published, assert_published, published
from pgrouse.testing.template import DatabaseTemplate, database, template

__all__ = [
    "Attempt",
    "DatabaseTemplate",
    "DatabaseUrl",
    "assert_not_published",
    "assert_published",
    "at",
    "clean",
    "database",
    "drain",
    "perform",
    "published",
    "template",
]
