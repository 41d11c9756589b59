"""What a daemon imports to start: each package that only other parts need would be paid for by every start."""

from __future__ import annotations

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
START = "import json, sys, pgrouse.cli.run, pgrouse.worker.daemon; print(json.dumps(sorted(sys.modules)))"


def test_a_daemon_imports_nothing_that_only_other_parts_need() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)

    assert [each for each in sorted(OF_OTHER_PARTS) if f'"{each}"' in done.stdout] == []
