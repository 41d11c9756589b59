"""docs/operating/spark-clusters.md: its commands run on a cluster whose executors have only what is sent to them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import Page
from tests.pipeline.cluster import QUICK, SPARK_HOME, Cluster, java, standalone
from tests.pipeline.lakes import archive, fill, ids
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.uv import environment, uv

# A registry may be slow, and so are JVMs.
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
PAGE = Page("docs/operating/spark-clusters.md").section("spark-submit")
COUNT = 300
# What the catalog has.
SHOW = """\nprint(spark.sql("SHOW TABLE EXTENDED LIKE 'archive'").first().information)\n"""
ORDERS = "def load(batch):\n    batch.foreach(lambda row: None)\n"
(BLOCK,) = [block for block in PAGE.blocks if block.kind == "console"]
INSTALL, PACK, SET, CONSUME, EXPORT, READ = BLOCK.text.removeprefix("$ ").split("\n$ ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of the page and the archive, made from a wheel."""
    folder = tmp_path_factory.mktemp("programs")
    written(folder)
    installed(folder)
    packed = subprocess.run(["bash", "-euc", PACK], cwd=folder, capture_output=True, text=True, check=False)
    assert packed.returncode == 0, packed.stderr
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one worker."""
    with standalone(tmp_path_factory.mktemp("cluster"), workers=1) as cluster:
        yield cluster


def test_consume_runs_with_a_wheel(
    folder: Path, cluster: Cluster, surroundings: dict[str, str], queue: Queue, database: Database
) -> None:
    queue.policy("order.placed", max_attempts=3)
    queue.publish_many(COUNT, "order.placed")

    submitted(folder, cluster, surroundings, database.dsn, CONSUME)

    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == COUNT


def test_export_and_read_run_with_a_wheel(
    folder: Path, cluster: Cluster, surroundings: dict[str, str], queue: Queue, database: Database
) -> None:
    fill(queue, COUNT, "order.placed")
    before = len(cluster.executors())

    said = submitted(folder, cluster, surroundings, database.dsn, EXPORT, READ)

    assert f"|order.placed|success|{COUNT * 9 // 10:5}|" in said
    assert "Provider: delta" in said
    assert f"Location: file:{folder}/lake" in said
    assert ids(folder / "lake") == archive(queue)
    unpacked = list(cluster.folder.glob("worker1/work/app-*/*/environment/bin/python"))
    assert len(unpacked) == len(cluster.executors()) == before + 2


def written(folder: Path) -> None:
    """Write the programs of the page, whose first line is their name, and a function to consume with."""
    for block in PAGE.blocks:
        if block.kind == "python":
            (folder / block.text.partition("\n")[0].removeprefix("# ")).write_text(block.text)
    (folder / "orders.py").write_text(ORDERS)
    with (folder / "read_archive.py").open("a") as program:
        program.write(SHOW)


def installed(folder: Path) -> None:
    """Make the environment that the page packs, from a wheel."""
    uv("build", "--quiet", "--wheel", "--out-dir", folder / "dist", Path(__file__).parents[2])
    (wheel,) = (folder / "dist").glob("*.whl")
    # Copies: tar ends with 1 if another uv makes a link to a file that it reads.
    environment(folder, "--link-mode=copy", f"{wheel}[spark-provided]").rename(folder / "environment")
    # Spark itself comes from the cluster.
    assert not list(folder.glob("environment/lib/python*/site-packages/pyspark"))


def submitted(folder: Path, cluster: Cluster, env: dict[str, str], dsn: str, *commands: str) -> str:
    """Run commands of the page; return what they print."""
    script = "\n".join([SET, *commands])
    for shown, real in {
        "spark://host:7077": cluster.master,
        "postgresql://operator@db/app": f"'{dsn}'",
        "/shared/lake": str(folder / "lake"),
    }.items():
        script = script.replace(shown, real)
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def surroundings(folder: Path) -> dict[str, str]:
    """Return the environment of a machine with Spark and a Hive metastore, which does not say where a database is."""
    settings = {
        # The metastore is gone with the test.
        "spark.driver.extraJavaOptions": f"{QUICK} -Dderby.system.durability=test",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "SPARK_", "PY"))}
    return (
        own
        | java()
        | quick_spark(folder / "conf", **settings)
        | {"SPARK_HOME": str(SPARK_HOME), "PATH": f"{SPARK_HOME}/bin:{own['PATH']}"}
    )
