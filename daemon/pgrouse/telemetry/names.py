"""The names of OpenTelemetry's messaging conventions, and pgrouse's names below `messaging.pgrouse`.

The conventions are still in development.
"""

from __future__ import annotations

from enum import StrEnum

import psycopg

# The name of the instrumentation, for tracers and meters.
SCOPE = "pgrouse"
SYSTEM = "pgrouse"

MESSAGING_SYSTEM = "messaging.system"
DESTINATION_NAME = "messaging.destination.name"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
SERVICE_NAME = "service.name"
SERVICE_INSTANCE_ID = "service.instance.id"

ATTEMPT = "messaging.pgrouse.message.attempt"
OUTCOME = "messaging.pgrouse.outcome"

SENT_MESSAGES = "messaging.client.sent.messages"
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
OPERATION_DURATION = "messaging.client.operation.duration"
PROCESS_DURATION = "messaging.process.duration"

# Bounds of both histograms, in seconds, as the conventions recommend.
DURATION_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

# The value of error.type where there is no exception class.
OTHER = "_OTHER"
TIMEOUT = "timeout"
REJECTED = "rejected"
FAILED = "failed"
LOST = "lock_lost"
CANCELLED = "cancelled"


class MessagingOperation(StrEnum):
    """The operations on messages: `messaging.operation.type`, and the names here."""

    SEND = "send"
    RECEIVE = "receive"
    PROCESS = "process"
    SETTLE = "settle"


def server_attributes(conn: object) -> dict[str, str | int]:
    """Return its address and port, if it is a psycopg connection; nothing for others and for closed ones."""
    if not isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        return {}
    try:
        return {SERVER_ADDRESS: conn.info.host, SERVER_PORT: conn.info.port}
    except psycopg.Error:
        return {}
