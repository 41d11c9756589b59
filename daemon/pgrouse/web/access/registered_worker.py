"""What a caller may do with a worker of the registry: that follows from the topics that it works."""

from __future__ import annotations

from pgrouse.client.call import run_async
from pgrouse.client.queries.worker import find_worker
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection
from pgrouse.web.http.problem import Problem


async def check_operates(conn: Connection, caller: Caller, name: str) -> None:
    """Check that a caller may operate a worker: all of its topics.

    Raises:
        Problem: 404 if there is no such worker, or the caller sees none of its topics; 403 without permission.
    """
    found = await run_async(conn, find_worker(name))
    if found is None or not (caller.sees_all or any(map(caller.sees, found.topics))):
        raise Problem(404, f"worker {name} does not exist", "not_found")
    # The refusal names none of the topics: those of others are not shown.
    if not all(caller.may(Role.OPERATOR, topic) for topic in found.topics):
        raise Problem(
            403,
            f"{caller.name} does not have the role operator for all topics of worker {name}",
            "forbidden",
            needs="operator",
        )
