"""messages.check_worker_name: what is a name of a worker."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize("name", ["host:1:ab", "x" * 300, "Zürich", None])
def test_a_name_is_taken(queue: Queue, name: str | None) -> None:
    queue.call("check_worker_name", name)


@pytest.mark.parametrize("name", ["", "*", "x" * 301, "a\u202eb", "a\nb"])
def test_what_is_none_is_refused_with_what_to_use(queue: Queue, name: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="name of a worker is") as refused:
        queue.call("check_worker_name", name)

    assert "1 to 300 printable characters" in str(refused.value.diag.message_hint)
