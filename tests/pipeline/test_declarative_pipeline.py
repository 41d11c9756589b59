"""examples/pipelines is a valid pipeline, as far as can be checked without Spark Connect, which `spark-pipelines` needs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, StreamingTable
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples" / "pipelines"
SPEC = yaml.safe_load((FOLDER / "spark-pipeline.yml").read_text())


class Graph(GraphElementRegistry):
    """What the files of a pipeline define."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.target] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise AssertionError(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError(file_path)


@pytest.fixture
def graph() -> Graph:
    """The graph of the files that the specification names, each loaded as a separate module."""
    graph = Graph()
    with graph_element_registration_context(graph):
        for library in SPEC["libraries"]:
            for file in sorted(FOLDER.glob(library["glob"]["include"] + "/*.py")):
                runpy.run_path(str(file))
    return graph


def test_the_specification_has_the_required_and_only_known_keys() -> None:
    assert {"name", "storage", "libraries"} <= set(SPEC) <= {"name", "storage", "libraries", "configuration"}
    assert SPEC["storage"].startswith("file:///")
    assert all(isinstance(value, str) for value in SPEC["configuration"].values())


def test_the_files_define_a_table_that_follows_the_archive_and_a_view_of_it(graph: Graph) -> None:
    kinds = {name: type(output) for name, output in graph.outputs.items()}

    assert kinds == {"ended": StreamingTable, "faults": MaterializedView}
    assert set(graph.flows) == set(kinds)


@pytest.mark.spark
def test_the_flows_are_a_stream_of_the_archive_and_a_count_of_dead_messages(spark: SparkSession, graph: Graph) -> None:
    ended = graph.flows["ended"].func()
    rows = [(1, "mail", "success"), (2, "mail", "failed"), (3, "mail", "rejected"), (4, "mail", "cancelled")]
    columns = [f.lit(None).cast(field.dataType).alias(field.name) for field in ended.schema.fields[3:]]
    died = spark.createDataFrame(rows, "id LONG, topic STRING, result STRING").select("*", *columns)
    died.createOrReplaceTempView("ended")

    faults = graph.flows["faults"].func()

    spark.catalog.dropTempView("ended")
    assert (ended.isStreaming, faults.isStreaming) == (True, False)
    assert [tuple(row) for row in faults.collect()] == [("mail", None, 2, None)]
