"""The whole page: one file that loads nothing, for browsers with and without scripts."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template

from pyspark_pgrouse.report.findings import Findings
from pyspark_pgrouse.report.html.capacity import capacity
from pyspark_pgrouse.report.html.channels import channels
from pyspark_pgrouse.report.html.comparison import comparison
from pyspark_pgrouse.report.html.cost import cost
from pyspark_pgrouse.report.html.failures import failures
from pyspark_pgrouse.report.html.formatting import count, duration, moment
from pyspark_pgrouse.report.html.latency import latency
from pyspark_pgrouse.report.html.markup import Markup, join, tag
from pyspark_pgrouse.report.html.retries import retries
from pyspark_pgrouse.report.html.section import section
from pyspark_pgrouse.report.html.slo import slo
from pyspark_pgrouse.report.html.throughput import throughput
from pyspark_pgrouse.report.html.tiles import tiles
from pyspark_pgrouse.report.html.weeks import weeks
from pyspark_pgrouse.report.window import Window


def page(findings: Findings) -> str:
    """Return the page as HTML.

    It runs only its own script and loads nothing: its content security policy forbids both.
    """
    script = _file("tips.js")
    return Template(_file("page.html")).substitute(
        policy=_policy(script),
        style=_file("style.css"),
        script=script,
        title=tag("title", f"pgrouse report, {moment(findings.window.until)} UTC"),
        meta=_meta(findings),
        body=_body(findings),
        foot=_foot(findings),
    )


def _body(findings: Findings) -> Markup:
    if not findings.whole.ended:
        return section(
            "empty",
            "Nothing ended",
            f"No message ended from {_between(findings.asked)}. Is this the right source, and the right time?",
        )
    parts = (
        tiles(findings),
        comparison(findings),
        slo(findings),
        weeks(findings),
        cost(findings),
        throughput(findings),
        latency(findings),
        failures(findings),
        capacity(findings),
        retries(findings),
        channels(findings),
    )
    return join(part for part in parts if part is not None)


def _meta(findings: Findings) -> Markup:
    facts = {
        "Window": f"{_between(findings.window)} ({duration(findings.window.seconds)})",
        "Source": findings.source,
        "Read": f"{count(findings.read)} archived messages",
        "Made": f"{moment(findings.made_at)} UTC",
    }
    if findings.window != findings.asked:
        facts["Asked for"] = f"{_between(findings.asked)}; the rest of it is empty"
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", said)) for name, said in facts.items()), class_="meta")


def _between(window: Window) -> str:
    return f"{moment(window.since)} to {moment(window.until)} UTC"


def _foot(findings: Findings) -> Markup:
    names = join((tag("code", f"tables/{name}.parquet") for name in findings.tables), " ")
    said = (
        "All times are UTC. A message belongs to the time at which it ended. Topics whose successes are not kept (archive_success = none) show their "
        "failures only. Percentiles are exact to three digits."
    )
    return join([tag("p", said), tag("p", "Every number and more, as Parquet: ", names) if findings.tables else None])


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _file(name: str) -> str:
    return files("pyspark_pgrouse.report.html").joinpath(name).read_text(encoding="utf-8")
