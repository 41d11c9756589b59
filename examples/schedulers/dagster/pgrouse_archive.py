"""Dagster: the lake is an asset that is updated each hour; its metadata tell how far it is behind.

The environment of the code location needs these variables:

    PGROUSE_PROGRAM   `pgrouse` of an environment with pgrouse[spark]; it need not be Dagster's own
                      (default: the one on PATH)
    PGROUSE_DSN       the database, or libpq's PGSERVICE
    PGROUSE_LAKE      the lake: a folder, or a URL as s3a://bucket/lake
"""

from __future__ import annotations

import json
import os
import subprocess

from dagster import (
    Backoff,
    Definitions,
    Failure,
    MaterializeResult,
    RetryPolicy,
    ScheduleDefinition,
    asset,
    define_asset_job,
)

# The database cannot be reached (69), or it or Spark went away (75): docs/reference/exit-codes.md. All other errors
# would only be repeated.
TRY_AGAIN = (69, 75)


@asset(retry_policy=RetryPolicy(max_retries=5, delay=60, backoff=Backoff.EXPONENTIAL), pool="pgrouse_export")
def archive_lake() -> MaterializeResult:
    """The archive of pgrouse, as far as it is exported."""
    program = os.environ.get("PGROUSE_PROGRAM", "pgrouse")
    command = [program, "pipeline", "export", os.environ["PGROUSE_LAKE"], "--json"]
    job = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if job.returncode != 0:
        raise Failure(
            f"the export ended with {job.returncode}: its log is above", allow_retries=job.returncode in TRY_AGAIN
        )
    report = json.loads(job.stdout)
    return MaterializeResult(metadata={each: report[each] for each in ("rows", "rows_waiting", "bytes", "seconds")})


hourly = ScheduleDefinition(job=define_asset_job("export", [archive_lake]), cron_schedule="0 * * * *")
defs = Definitions(assets=[archive_lake], schedules=[hourly])
