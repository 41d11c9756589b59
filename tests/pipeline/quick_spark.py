"""Settings of Spark for tests: of JVMs that live for seconds, and of queries over a few rows."""

from __future__ import annotations

from pathlib import Path

# Compilers cost more than they save: Java's, and Spark's own. So does a collector of garbage with threads of its own.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def quick_spark(folder: Path, **settings: str) -> dict[str, str]:
    """Write the settings, and more, into a new folder for a program that starts a Spark of its own.

    Return the environment that names it.
    """
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in (SETTINGS | settings).items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(folder)}
