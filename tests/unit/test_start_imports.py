"""What a daemon and an application import to start.

Each package that only other parts need would be paid for by every start.
"""

from __future__ import annotations

import json
import subprocess
import sys

# Installed here, and each of them takes longer to import than the daemon may take to start.
OF_OTHER_PARTS = {
    "apprise",
    "asyncpg",
    "cryptography",
    "django",
    "fastapi",
    "httpx",
    "jsonschema_rs",
    "opentelemetry",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "sentry_sdk",
    "sqlalchemy",
    "starlette",
    "textual",
    "uvicorn",
    "watchfiles",
}
START = """
import linecache, sys, pgrouse.cli.background.run, pgrouse.worker.daemon
print(*sys.modules)
import pgrouse.web.v1.model
print([each for each in linecache.cache if "/daemon/pgrouse/" in each])
"""


def test_a_daemon_imports_nothing_that_only_other_parts_need_and_reads_the_source_of_no_module() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)

    modules, sources_read = done.stdout.splitlines()
    assert OF_OTHER_PARTS & {*modules.split()} == set()
    assert sources_read == "[]"


def test_an_application_that_publishes_imports_nothing_that_only_logs_or_runs_handlers() -> None:
    names = "Client, AsyncClient, publish, publish_many, topic, wait_for, Context, AsyncContext, migrate"
    code = f"import sys; from pgrouse import {names}; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {"structlog", "rich", "psycopg_pool", "pgrouse.config.config", "urllib.request"} & {
        *done.stdout.split()
    } == set()


def test_the_first_event_of_an_application_is_logged_by_its_structlog() -> None:
    code = (
        "from pgrouse.process.backoff import FailureLog; import structlog;"
        "structlog.configure(processors=[structlog.processors.JSONRenderer(sort_keys=True)]);"
        "FailureLog('part').failed(OSError('gone'))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == {"event": "loop.failed", "loop": "part", "failures": 1, "reason": "gone"}
