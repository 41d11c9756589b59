"""Airflow: exports the archive to the lake each hour, and reports on the week each Monday.

Workers need these variables in their environment:

    PGROUSE_PROGRAM   `pgrouse` of an environment with pgrouse[spark,report]; it need not be Airflow's own
                      (default: the one on PATH)
    PGROUSE_DSN       the database, or libpq's PGSERVICE
    PGROUSE_LAKE      the lake: a folder, or a URL as s3a://bucket/lake
    PGROUSE_REPORTS   the folder of the reports
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

# The database cannot be reached (69), or it or Spark went away (75): docs/reference/exit-codes.md. All other errors
# would only be repeated.
TRY_AGAIN = (69, 75)
RETRIES = {"retries": 5, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True}
START = datetime(2026, 1, 1, tzinfo=UTC)


def run(*arguments: str) -> dict[str, Any]:
    """Run a job of pgrouse; return what it reports. The log of the task has its progress.

    Raises:
        AirflowException: the job was interrupted; Airflow repeats the task.
        AirflowFailException: the job would fail again.
    """
    program = os.environ.get("PGROUSE_PROGRAM", "pgrouse")
    job = subprocess.run([program, "pipeline", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if job.returncode in TRY_AGAIN:
        raise AirflowException("the job was interrupted: its log is above")
    if job.returncode != 0:
        raise AirflowFailException(f"the job ended with {job.returncode}: its log is above")
    report: dict[str, Any] = json.loads(job.stdout)
    return report


# No catchup: an export continues where the last one ended. One run at a time: a second one of the same name is refused.
@dag(schedule="@hourly", start_date=START, catchup=False, max_active_runs=1, default_args=RETRIES)
def pgrouse_export() -> None:
    @task
    def export() -> dict[str, Any]:
        return run("export", os.environ["PGROUSE_LAKE"])

    export()


@dag(schedule="0 6 * * 1", start_date=START, catchup=False, default_args=RETRIES)
def pgrouse_report() -> None:
    @task
    def report() -> dict[str, Any]:
        lake, reports = os.environ["PGROUSE_LAKE"], os.environ["PGROUSE_REPORTS"]
        return run("report", "--lake", lake, "--since", "7d", "--baseline", "7d", "--out", reports)

    report()


pgrouse_export()
pgrouse_report()
