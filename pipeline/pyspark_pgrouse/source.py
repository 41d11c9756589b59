"""The format `pgrouse`: the class that Spark asks for a reader or a writer.

Spark loads this file in every session that looks for any format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pgrouse.errors import PgrouseError
from pyspark_pgrouse import schema as schemas
from pyspark_pgrouse.options import INFER, SCHEMA, Mode, Operation, Options
from pyspark_pgrouse.read.refused_stream import RefusedStream

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.lake.options import LakeOptions


class DefaultSource(DataSource):
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `.format("pgrouse")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pgrouse"

    def schema(self) -> str:
        """Return the columns of a read that names none."""
        if "lake" in self.options:
            return self._lake().ddl()
        options = Options.parse(self.options)
        if options.payload in (SCHEMA, INFER):
            from pyspark_pgrouse.read.payload_fields import resolve  # noqa: PLC0415 - slow to import: for this only

            options = resolve(options)
        return schemas.ddl(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        if "lake" in self.options:
            from pyspark_pgrouse.lake.reader import lake_batch  # noqa: PLC0415 - slow to import: for this only

            return lake_batch(self._lake(), schema)
        options = Options.parse(self.options, Operation.BATCH)
        if options.mode is Mode.READY:
            from pyspark_pgrouse.read.ready_batch import ReadyBatch  # noqa: PLC0415 - slow to import: for this only

            return ReadyBatch(options, schema)
        from pyspark_pgrouse.read.archive_batch import archive_batch  # noqa: PLC0415 - slow to import: for this only

        return archive_batch(options, schema)

    def _lake(self) -> LakeOptions:
        from pyspark_pgrouse.lake.options import LakeOptions  # noqa: PLC0415 - slow to import: for this only

        return LakeOptions.parse(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of `spark.readStream`."""
        from pyspark_pgrouse.read.archive_stream import ArchiveStream  # noqa: PLC0415 - slow to import: for this only

        try:
            return ArchiveStream(Options.parse(self.options, Operation.STREAM), schema)
        except PgrouseError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of `df.write`."""
        from pyspark_pgrouse.publish.batch import PublishWriter  # noqa: PLC0415 - slow to import: for this only

        return PublishWriter(Options.parse(self.options, Operation.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of `df.writeStream`."""
        from pyspark_pgrouse.publish.stream import PublishStreamWriter  # noqa: PLC0415 - slow to import: for this only

        return PublishStreamWriter(Options.parse(self.options, Operation.WRITE), schema, overwrite)
