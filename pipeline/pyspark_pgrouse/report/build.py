"""Makes a report from a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark_pgrouse.report.destination import Destination
from pyspark_pgrouse.report.findings import Findings, collect_findings
from pyspark_pgrouse.report.html.page import page
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.source import ArchiveSource
from pyspark_pgrouse.report.tables import NAMES, Tables
from pyspark_pgrouse.report.window import Window

STAGES = ("read", *NAMES, "page")


@dataclass(frozen=True)
class ReportRequest:
    """The request for a report."""

    source: ArchiveSource
    window: Window
    slos: Sequence[Slo]
    destination: Destination


def build_report(request: ReportRequest, began: Callable[[str], None]) -> Findings:
    """Write the tables and the page; return the findings on the page.

    Args:
        request: the request.
        began: called at the beginning of each of STAGES.

    Raises:
        ReportFailed: see `Tables.open`.
    """
    asked = request.window
    with TemporaryDirectory(prefix="pgrouse-report-") as folder, Tables.open(Path(folder)) as tables:
        began("read")
        tables.load(request.source.read(asked), asked)
        read, first, last = tables.span()
        window = asked.fitted(first, last)
        tables.make(window, request.slos, began)
        began("page")
        findings = {"source": request.source.name, "made_at": datetime.now(UTC), "read": read}
        findings |= collect_findings(tables, window, asked, request.slos)
        tables.write(Path(folder))
        request.destination.write(Path(folder), page(findings))
    return findings
