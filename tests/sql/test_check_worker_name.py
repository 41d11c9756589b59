"""messages.check_worker_name: which worker names are valid."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize("name", ["host:1:ab", "x" * 300, "Zürich", None])
def test_a_valid_name_is_accepted(queue: Queue, name: str | None) -> None:
    queue.call("check_worker_name", name)


@pytest.mark.parametrize("name", ["", "x" * 301, "a\u202eb", "a\nb"])
def test_an_invalid_name_is_refused_with_the_fix(queue: Queue, name: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="name of a worker is") as refused:
        queue.call("check_worker_name", name)

    assert "1 to 300 printable characters" in str(refused.value.diag.message_hint)
