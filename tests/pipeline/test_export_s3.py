"""A lake in an object store: the same guarantees without a rename. The server is a local one with the API of S3."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import fsspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pgrouse.errors import ConfigError
from pyspark_pgrouse.connection import connect
from pyspark_pgrouse.lake import compaction, delta
from pyspark_pgrouse.lake.cursor import ExportConflict
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.export import Export, ExportOptions
from pyspark_pgrouse.lake.frame import batches_of
from pyspark_pgrouse.lake.lake import Lake
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

    One for the session: fsspec remembers where it found the first, and pytest may run the tests without a database apart from the others.
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
    snapshot = Lake.open(lake).snapshot()
    directory = Directory.at(lake)
    batches = [batch for file in snapshot.files for batch in batches_of(directory, file.path, snapshot.columns)]
    return sorted(value for batch in batches for value in batch.column("id").to_pylist())


def objects(bucket: Any) -> set[str]:
    return {each.key.removeprefix("lake/") for each in bucket.objects.all() if each.key.endswith(".parquet")}


def test_every_archived_row_is_in_the_lake_once(queue: Queue, database: Database, bucket: Any) -> None:
    fill(queue, 250)
    exported(database, LAKE)
    fill(queue, 20)
    exported(database, LAKE)

    assert ids() == archive(queue)
    assert all(path.startswith("s3a://bucket/lake/date=") for path in Lake.open(LAKE).files())
    assert objects(bucket) == {f.path for f in Lake.open(LAKE).snapshot().files}


def test_a_kill_before_the_manifest_leaves_no_trace_of_the_batch(queue: Queue, database: Database, bucket: Any) -> None:
    fill(queue, 100)

    def killed(work: Callable[[Any], Any], parts: Any) -> Any:
        one_by_one(work, parts)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exported(database, LAKE, killed)
    assert (ids(), objects(bucket) == set()) == ([], False)

    exported(database, LAKE)

    assert ids() == archive(queue)
    assert objects(bucket) == {f.path for f in Lake.open(LAKE).snapshot().files}


def test_a_commit_is_made_once_although_nothing_is_renamed(queue: Queue, database: Database) -> None:
    fill(queue, 100)

    def overtaken(work: Callable[[Any], Any], parts: Any) -> Any:
        with connect(database.dsn) as conn:
            list(Export.begin(conn, database.dsn, LAKE, ExportOptions()).batches(one_by_one, 2))
        return one_by_one(work, parts)

    with pytest.raises(ExportConflict, match="was committed by another process"):
        exported(database, LAKE, overtaken)

    assert ids() == archive(queue)


def test_the_store_refuses_the_second_of_two_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory.at(LAKE)
    assert directory.create("one", b"first") is True
    monkeypatch.setattr(type(directory._fs), "exists", lambda *_: False)

    assert directory.create("one", b"second") is False
    assert directory.read("one") == b"first"


def test_merged_files_replace_the_small_ones(queue: Queue, database: Database, bucket: Any) -> None:
    for _ in range(2):
        fill(queue, 12, days_ago=1)
        exported(database, LAKE)
    lake = Lake.open(LAKE)

    compaction.compact(lake, one_by_one, datetime.now(UTC).date() + timedelta(days=1))
    compaction.expire(lake, timedelta(0))

    assert ids() == archive(queue)
    assert len(objects(bucket)) == 6


def test_a_delta_table_is_written_to_the_bucket(queue: Queue, database: Database) -> None:
    fill(queue, 30)
    exported(database, LAKE, delta=True)

    delta.follow(Lake.open(LAKE))

    assert sorted(DeltaTable(LAKE).to_pyarrow_table().column("id").to_pylist()) == archive(queue)


def test_a_missing_bucket_is_reported(queue: Queue, database: Database) -> None:
    with pytest.raises(ConfigError, match="the lake s3a://nosuch/lake"):
        exported(database, "s3a://nosuch/lake")


@pytest.mark.spark
def test_spark_reads_the_lake_without_a_jar(
    queue: Queue, database: Database, spark: SparkSession, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has started before this test set its environment: the settings of fsspec are sent with the tasks."""
    known = {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": s3, "region_name": "us-east-1"}}
    monkeypatch.setitem(fsspec.config.conf, "s3", known)
    fill(queue, 30)
    exported(database, LAKE)

    assert sorted(row.id for row in Lake.open(LAKE).read(spark).select("id").collect()) == archive(queue)


def test_the_files_are_plain_parquet(queue: Queue, database: Database, bucket: Any) -> None:
    fill(queue, 3)
    exported(database, LAKE)

    with Directory.at(LAKE).source(Lake.open(LAKE).snapshot().files[0].path) as stream:
        assert pq.read_table(stream).num_rows == 1
