"""docs/runbooks.md has a section for everything that alerts, and names only what exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import click
import psycopg
import pytest
import yaml

from pgrouse.alerts import runbooks
from pgrouse.alerts.notice import KINDS as CONDITIONS
from pgrouse.cli.root import root
from pgrouse.config.alerts import AlertKind
from pgrouse.doctor import CODES
from tests.docs.page import ROOT, Page, pages

PAGE = Page("docs/runbooks.md")
SECTIONS = {heading: PAGE.section(heading) for _, heading in PAGE.headings() if heading != "Runbooks"}
RUNBOOKS = {heading: section for heading, section in SECTIONS.items() if heading != "Change a threshold"}
PARTS = ("Meaning", "Impact", "Diagnosis", "Fix", "Prevention")
GUIDES = [PAGE, *(page for page in pages() if page.name.startswith("docs/operating/"))]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def documented(kind: str) -> set[str]:
    """Return what leads to the sections: names of rules, alerts or codes of the doctor."""
    output = (re.search(r"Reported by:(.*?)\n\n", each.text, re.DOTALL) for each in RUNBOOKS.values())
    parts = [part for found in output if found for part in found[1].split(";")]
    return {name for part in parts if re.match(rf"\s*{kind}s?\b", part) for name in re.findall(r"`(\w+)`", part)}


@pytest.mark.parametrize("heading", RUNBOOKS)
def test_every_runbook_has_all_sections(heading: str) -> None:
    text = RUNBOOKS[heading].text

    assert "Reported by:" in text
    assert [part for part in PARTS if f"**{part}.**" not in text] == []
    assert RUNBOOKS[heading].blocks


def test_every_rule_links_to_its_runbook_which_names_it() -> None:
    anchors = PAGE.anchors()
    named = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules()}

    assert named
    for name, address in named.items():
        path, anchor = urlsplit(address).path, urlsplit(address).fragment
        assert path == runbooks.PAGE
        assert anchor in anchors, address
        assert runbooks.path(name) == f"{path}#{anchor}"
        (heading,) = [each for each in RUNBOOKS if each.lower().replace(" ", "-") == anchor]
        assert f"`{name}`" in RUNBOOKS[heading].text, f"{heading} does not name {name}"


def test_every_named_rule_exists_and_all_are_named() -> None:
    assert documented("rule") == {rule["alert"] for rule in rules()}


def test_every_kind_of_alert_has_its_runbook() -> None:
    assert documented("alert") == set(get_args(AlertKind))
    assert None not in map(runbooks.path, get_args(AlertKind))


def test_every_condition_has_a_rule_of_the_same_severity_in_its_runbook(db: psycopg.Connection[Any]) -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    conditions = {*CONDITIONS, "dead_message"}
    of_section: dict[str, set[str]] = {}
    for name, severity in severities.items():
        of_section.setdefault(str(runbooks.path(name)), set()).add(severity)
    said = {kind: db.execute("SELECT messages.alert_severity(%s)", [kind]).fetchone() for kind in conditions}

    assert conditions | {"failed", "rejected", "lock_expired", "expired"} == set(get_args(AlertKind))
    assert {kind for kind in conditions if said[kind][0] not in of_section[str(runbooks.path(kind))]} == set()


def test_the_kinds_that_page_are_those_that_the_page_of_alerts_names(db: psycopg.Connection[Any]) -> None:
    (row,) = re.findall(r"\| severity \| `page`: [^(]*\(([^)]*)\)", Page("docs/reference/alerts.md").text)
    pages_somebody = {
        kind
        for kind in get_args(AlertKind)
        if db.execute("SELECT messages.alert_severity(%s)", [kind]).fetchone() == ("page",)
    }

    assert set(re.findall(r"`(\w+)`", row)) == pages_somebody


def test_each_condition_in_an_expression_of_a_rule_exists_and_has_its_severity(db: psycopg.Connection[Any]) -> None:
    used = {
        (kind, rule["labels"]["severity"])
        for rule in rules()
        for kind in re.findall(r'pgrouse_condition\{kind="(\w+)"\}\) (?:== 1|> 0)\n?$', rule["expr"].strip())
    }

    assert {kind for kind, _ in used} >= {"workers_down", "breaker", "dead_rate"}
    assert used == {(kind, db.execute("SELECT messages.alert_severity(%s)", [kind]).fetchone()[0]) for kind, _ in used}
    assert {kind for kind, _ in used} <= set(CONDITIONS)


def test_every_code_of_the_doctor_has_its_runbook() -> None:
    assert documented("doctor") == set(CODES)
    assert None not in map(runbooks.path, CODES)


def test_what_no_runbook_names_has_none() -> None:
    assert runbooks.path("nothing") is None


def test_without_the_file_there_are_no_links_and_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runbooks, "text", (tmp_path / "missing").read_text)
    runbooks._anchors.cache_clear()
    try:
        assert runbooks.path("backlog") is None
    finally:
        runbooks._anchors.cache_clear()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_named_command_and_its_options_exist(page: Page) -> None:
    wrong = [f"{line}: {problem}" for line in commands(page) if (problem := complaint(line))]

    assert wrong == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_function_table_and_column_in_a_statement_exists(page: Page, db: psycopg.Connection[Any]) -> None:
    for statement in statements(page):
        db.execute("BEGIN")
        prepare(db, statement)
        db.execute("ROLLBACK")


def prepare(db: psycopg.Connection[Any], statement: str) -> None:
    """Parse a statement on the server without running it.

    If it cannot be prepared, its indexes and tables are looked up.
    """
    if re.match(r"(SELECT|UPDATE|INSERT|DELETE|WITH)\b", statement):
        db.execute(f"PREPARE it AS {statement}".encode())
        db.execute("DEALLOCATE it")
        return
    for name in re.findall(r"\bmessages\.\w+", statement):
        assert db.execute("SELECT to_regclass(%s)", [name]).fetchone() != (None,), name


def statements(page: Page) -> Iterator[str]:
    """Yield the statements about the queue in blocks of SQL and behind `psql -c`."""
    texts = [block.text for block in page.blocks if block.kind == "sql"]
    shell = "\n".join(block.text for block in page.blocks if block.kind == "sh")
    texts += re.findall(r'psql -c "([^"]*)"', shell)
    for text in texts:
        for statement in re.sub(r"^--.*$", "", text, flags=re.MULTILINE).split(";"):
            if statement.strip() and "cron." not in statement:
                yield statement.strip()


def commands(page: Page) -> Iterator[str]:
    """Yield the calls of pgrouse in blocks of shell and between backquotes.

    What is piped to them or from them is left out.
    """
    for block in page.blocks:
        if block.kind in ("sh", "console"):
            for line in block.text.replace("\\\n", " ").split("\n"):
                if found := re.match(r"(?:\$ )?(?:sudo |[A-Z_]+=\S+ )*(pgrouse .*)", line):
                    yield found[1]
    yield from re.findall(r"`(pgrouse [a-z][^`]*)`", page.prose)


def complaint(line: str) -> str | None:
    """Return the error in a call of pgrouse: no such command, or no such option; None if it is valid."""
    words = shlex.split(re.sub(r"[|>].*|\.\.\.|…|&$", "", line))[1:]
    command: click.Command | None = root
    context = click.Context(root)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(context, name)
        if command is None:
            return f"there is no {name}"
        context = click.Context(command, parent=context, info_name=name)
    assert command is not None
    known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"there is no option {unknown[0]}" if unknown else None
