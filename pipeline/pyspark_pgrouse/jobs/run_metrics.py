"""The metrics of a job's runs.

They say when it succeeded last, how long it took, how much it did, and how much waits for the next run.

A job ends, so nothing can scrape it. It writes its metrics to a file for the textfile collector of node_exporter,
pushes them to a Pushgateway, or exports them by OpenTelemetry, as the options request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from pgrouse.errors import ConfigError, ExitCode
from pgrouse.telemetry import names
from pgrouse.terminal.command import CliSession
from pgrouse.terminal.error_report import explain_error

NAMESPACE = "pgrouse_pipeline"
LAST_SUCCESS = "last_success_timestamp_seconds"


class RunGauge(NamedTuple):
    """One metric: its name and unit in OpenTelemetry, and what it means."""

    otel: str
    unit: str
    help: str


# By their names in Prometheus, without the namespace.
GAUGES = {
    "last_run_timestamp_seconds": RunGauge(
        "last_run_timestamp", "s", "When the last run of the job ended, in seconds since 1970."
    ),
    LAST_SUCCESS: RunGauge(
        "last_success_timestamp", "s", "When the last run that succeeded ended, in seconds since 1970."
    ),
    "exit_code": RunGauge("exit_code", "1", "The exit code of the last run; 0 is success."),
    "run_duration_seconds": RunGauge("run.duration", "s", "How long the last run took."),
    "run_rows": RunGauge(
        "run.rows", "{row}", "Rows or messages that the last run exported, published, redrove or processed."
    ),
    "run_bytes": RunGauge("run.bytes", "By", "Bytes of the files that the last run wrote."),
    "lag_rows": RunGauge(
        "lag.rows", "{row}", "Rows that waited for a later run when the last one ended; a million at most."
    ),
    "lag_seconds": RunGauge("lag", "s", "Age of the oldest of these rows; 0 if none waits."),
}
META = "pgrouse.run_metrics"
# A job that repeats its work writes its metrics at most this often.
INTERVAL_S = 10.0
PUSH_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class RunReport:
    """The figures of a run. None = the job has no such figure.

    Attributes:
        rows: rows or messages that it wrote, published, redrove or processed.
        bytes: the size of the files that it wrote.
        lag_rows: rows that wait for a later run.
        lag_s: the age of the oldest of these, in seconds.
    """

    rows: int | None = None
    bytes: int | None = None
    lag_rows: int | None = None
    lag_s: float | None = None


@dataclass(frozen=True)
class MetricsTargets:
    """The targets of the metrics.

    textfile: a file of the textfile collector; pushgateway: a URL; otel: the section of the configuration, if enabled.
    """

    textfile: Path | None = None
    pushgateway: str | None = None
    otel: Any = None


class RunMetrics:
    """The metrics of one process, which makes one run, or several in a row.

    Args:
        job: `export`, `consume`, …
        name: the name of the run, to distinguish several of one job; empty = there is only one.
        targets: the targets of the metrics.
    """

    def __init__(self, job: str, name: str, targets: MetricsTargets) -> None:
        self._labels = {"job": job, "name": name}
        self._targets = targets
        self._began = self._reported_at = time.monotonic()
        self._reported: RunReport | None = None
        self._shutdown: Callable[[], object] = _set_providers(targets.otel, job) if targets.otel else lambda: None

    def add(self, report: RunReport, code: int) -> None:
        """Record a run that has ended; write its metrics, unless that was done a moment ago."""
        self._reported = report
        now = time.monotonic()
        if self._reported_at == self._began or now - self._reported_at >= INTERVAL_S:
            self._write(report, code, now - self._began)
            self._began = self._reported_at = time.monotonic()

    def close(self, code: int) -> None:
        """Write the metrics of the process's end."""
        self._write(self._reported or RunReport(), code, time.monotonic() - self._began)
        self._shutdown()

    def _write(self, report: RunReport, code: int, seconds: float) -> None:
        values = _values(report, code, seconds)
        if self._targets.textfile is not None:
            _write_textfile(self._targets.textfile, self._labels, values)
        if self._targets.pushgateway is not None:
            _push(self._targets.pushgateway, self._labels, values)
        if self._targets.otel is not None:
            _record(self._labels, values)


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the targets of the metrics."""
    textfile = click.option(
        "--metrics-textfile",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write metrics of the run to this file, `….prom`, for the textfile collector of node_exporter.",
    )
    pushgateway = click.option(
        "--metrics-pushgateway", metavar="URL", help="Push metrics of the run to this Pushgateway of Prometheus."
    )
    name = click.option(
        "--metrics-name",
        default="",
        metavar="NAME",
        help="The label `name` of these metrics: several runs of one job have different names.",
    )
    return textfile(pushgateway(name(command)))


@contextmanager
def measured(session: CliSession, job: str, name: str, targets: MetricsTargets) -> Iterator[Callable[[int], None]]:
    """Measure a run.

    The yielded function takes the exit code of a run that returns; a run that raises has the code of its error.

    Raises:
        ConfigError: a target cannot be used.
    """
    _check(targets)
    otel = session.config.otel
    metrics = RunMetrics(
        job, name, MetricsTargets(targets.textfile, targets.pushgateway, otel if otel.enabled else None)
    )
    click.get_current_context().meta[META] = metrics
    codes = [int(ExitCode.FOUND_A_PROBLEM)]
    try:
        yield codes.append
    except BaseException as error:
        codes.append(_code_of(error))
        raise
    finally:
        metrics.close(codes[-1])


def record_run(report: RunReport, code: int = ExitCode.OK) -> None:
    """Report the figures of the running job, and its result as an exit code."""
    metrics: RunMetrics | None = _meta().get(META)
    if metrics is not None:
        metrics.add(report, code)


def _meta() -> dict[str, Any]:
    ctx = click.get_current_context(silent=True)
    return {} if ctx is None else ctx.meta


def _code_of(error: BaseException) -> int:
    try:
        return explain_error(error)[1]
    except BaseException:  # noqa: BLE001 - an unexpected error is raised again there
        return int(ExitCode.FOUND_A_PROBLEM)


def _values(report: RunReport, code: int, seconds: float) -> dict[str, float]:
    now = time.time()
    values = {
        "last_run_timestamp_seconds": now,
        LAST_SUCCESS: now if code == ExitCode.OK else None,
        "exit_code": code,
        "run_duration_seconds": seconds,
        "run_rows": report.rows,
        "run_bytes": report.bytes,
        "lag_rows": report.lag_rows,
        "lag_seconds": report.lag_s,
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def _check(targets: MetricsTargets) -> None:
    if targets.pushgateway is not None and urlsplit(targets.pushgateway).scheme not in ("http", "https"):
        raise ConfigError(f"--metrics-pushgateway {targets.pushgateway}: expected a URL like http://pushgateway:9091")
    if targets.textfile is None and targets.pushgateway is None:
        return
    if find_spec("prometheus_client") is None:
        raise ConfigError(
            "metrics of a job need prometheus_client, which is not installed: pip install 'pgrouse[metrics]'"
        )


def _registry(labels: dict[str, str], values: dict[str, float]) -> Any:
    from prometheus_client import CollectorRegistry, Gauge  # noqa: PLC0415 - extra metrics

    registry = CollectorRegistry()
    for name, value in values.items():
        gauge = Gauge(f"{NAMESPACE}_{name}", GAUGES[name].help, list(labels), registry=registry)
        (gauge.labels(**labels) if labels else gauge).set(value)
    return registry


def _write_textfile(path: Path, labels: dict[str, str], values: dict[str, float]) -> None:
    """Write the file; a failed run keeps the time of the last success."""
    from prometheus_client import write_to_textfile  # noqa: PLC0415 - extra metrics

    before = _last_success(path)
    kept = {} if before is None or LAST_SUCCESS in values else {LAST_SUCCESS: before}
    try:
        write_to_textfile(str(path), _registry(labels, values | kept))
    except OSError as error:
        click.echo(f"pgrouse: the metrics could not be written to {path}: {error.strerror}", err=True)


def _last_success(path: Path) -> float | None:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - extra metrics

    try:
        families = list(text_string_to_metric_families(path.read_text()))
    except (OSError, ValueError):
        return None
    return next(
        (each.samples[0].value for each in families if each.name == f"{NAMESPACE}_{LAST_SUCCESS}" and each.samples),
        None,
    )


def _push(url: str, labels: dict[str, str], values: dict[str, float]) -> None:
    """Push the metrics. Those that are not in `values` keep their value, for example the time of the last success."""
    from prometheus_client import pushadd_to_gateway  # noqa: PLC0415 - extra metrics

    group = {"name": labels["name"]} if labels["name"] else {}
    job = f"pgrouse-{labels['job']}"
    try:
        pushadd_to_gateway(url, job, _registry({}, values), group, PUSH_TIMEOUT_S)
    except OSError as error:
        click.echo(f"pgrouse: the metrics could not be pushed to the Pushgateway: {error}", err=True)


def _set_providers(settings: Any, job: str) -> Callable[[], object]:
    from pgrouse.telemetry.providers import set_providers  # noqa: PLC0415 - extra otel

    return set_providers(settings, f"pipeline-{job}").shutdown


def _record(labels: dict[str, str], values: dict[str, float]) -> None:
    from opentelemetry import metrics  # noqa: PLC0415 - extra otel

    meter = metrics.get_meter(names.SCOPE)
    attributes = {"pgrouse.pipeline.job": labels["job"], "pgrouse.pipeline.name": labels["name"]}
    for name, value in values.items():
        gauge = GAUGES[name]
        meter.create_gauge(f"pgrouse.pipeline.{gauge.otel}", gauge.unit, gauge.help).set(value, attributes)
