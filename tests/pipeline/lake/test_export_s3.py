"""A lake in an object store: the same guarantees without a rename. The server is a local one with the API of S3."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from deltalake import DeltaTable

from pgrouse.errors import ConfigError
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.lake.cursor import ExportConflict
from pyspark_pgrouse.lake.export import Export, ExportOptions
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.maintenance import optimize, vacuum
from tests.pipeline.lakes import archive, exported, fill, one_by_one
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The client's own loop and sockets are closed by the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LAKE = "s3a://bucket/lake"


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Start the server; return its address. It is a separate process: deltalake holds the interpreter while it waits.

    One for the session: fsspec remembers where it found the first, and pytest may run the tests without a database
    apart from the others.
    """
    # Bound and not listened to, it is reserved for the server, which may bind it too.
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                eventually(lambda: _answers(port), within_s=60)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(autouse=True)
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Create an empty bucket, and configure the server for all clients as usual: by the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    made = boto3.resource("s3", endpoint_url=s3, region_name="us-east-1").create_bucket(Bucket="bucket")
    yield made
    made.objects.all().delete()
    made.delete()


def ids(lake: str = LAKE) -> list[int]:
    found: list[int] = DeltaTable(lake).to_pyarrow_table(columns=["id"]).column("id").to_pylist()
    return sorted(found)


def objects(bucket: Any) -> set[str]:
    return {each.key.removeprefix("lake/") for each in bucket.objects.all() if "/date=" in each.key}


def named() -> set[str]:
    """Return the files of the newest version."""
    return {path.removeprefix(f"{LAKE}/") for path in Lake.open(LAKE).files()}


@pytest.mark.long
def test_every_archived_row_is_in_the_lake_once(queue: Queue, database: Database, bucket: Any) -> None:
    for _ in range(2):
        fill(queue, 120)
        exported(database, LAKE)
    lake = Lake.open(LAKE)
    assert ids() == archive(queue)
    assert all(path.startswith("s3a://bucket/lake/date=") for path in lake.files())
    assert objects(bucket) == named()

    # Merged files replace the small ones.
    optimize(lake)
    vacuum(lake, timedelta(0))
    assert ids() == archive(queue)
    assert len(objects(bucket)) == 6


@pytest.mark.long
def test_a_kill_before_the_commit_leaves_nothing_that_a_reader_sees(
    queue: Queue, database: Database, bucket: Any
) -> None:
    fill(queue, 100)

    def killed(work: Callable[[Any], Any], parts: Any) -> Any:
        one_by_one(work, parts)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exported(database, LAKE, killed)
    assert (ids(), objects(bucket) == set()) == ([], False)

    exported(database, LAKE)

    assert ids() == archive(queue)
    vacuum(Lake.open(LAKE), timedelta(0))
    assert objects(bucket) == named()


@pytest.mark.long
def test_a_commit_is_made_once_although_nothing_is_renamed(queue: Queue, database: Database) -> None:
    fill(queue, 100)

    def overtaken(work: Callable[[Any], Any], parts: Any) -> Any:
        with connect(database.dsn) as conn:
            list(Export.begin(conn, database.dsn, LAKE, ExportOptions()).batches(one_by_one, 2))
        return one_by_one(work, parts)

    with pytest.raises(ExportConflict, match="were committed by another process"):
        exported(database, LAKE, overtaken)

    assert ids() == archive(queue)


@pytest.mark.long
def test_the_store_refuses_the_second_of_two_commits(queue: Queue, database: Database) -> None:
    """Both saw the lake as it was before, and neither knows of the other."""
    exported(database, LAKE)
    one, other = Lake.open(LAKE), Lake.open(LAKE)
    start = one.position
    end = replace(start, xid="5", id=5)

    assert one.commit([], one.schema, start, end) is True
    assert other.commit([], other.schema, start, end) is False


def test_a_missing_bucket_is_reported(queue: Queue, database: Database) -> None:
    with pytest.raises(ConfigError, match="the lake s3a://nosuch/lake"):
        exported(database, "s3a://nosuch/lake")


@pytest.mark.spark
def test_spark_reads_the_lake_without_a_jar(queue: Queue, database: Database, spark: SparkSession) -> None:
    """Spark has started before this test set its environment: the settings of the driver are sent along."""
    fill(queue, 30)
    exported(database, LAKE)

    assert sorted(row.id for row in Lake.open(LAKE).read(spark).select("id").collect()) == archive(queue)
