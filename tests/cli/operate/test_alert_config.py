"""The settings of alerts: which are refused, with which error, and that no secret is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pgrouse.alerts.delivery import sink_rules
from pgrouse.alerts.sinks import KNOWN_KEYS, TYPES, read_sinks, with_sinks
from pgrouse.alerts.validate import validate_sinks
from pgrouse.config.alerts import AlertKind
from pgrouse.config.config import Config, load
from pgrouse.config.source import ConfigProblems
from tests.cli.shell import Shell

WEBHOOK = '[[alerts.to]]\nname = "ops"\nwebhook = "https://ops.example.com/hook"\n'


def read(tmp_path: Path, text: str, **environ: str) -> Config:
    path = tmp_path / "pgrouse.toml"
    path.write_text(text)
    return with_sinks(load(path, environ))


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('[[alerts.to]]\nname = "a"\nwebhok = "https://x/"\n', 3, "did you mean 'webhook'?"),
        ('[[alerts.to]]\nname = "a"\n', 1, f"needs exactly one of {', '.join(TYPES)}"),
        ('[[alerts.to]]\nname = "a"\nurl = "x"\ncommand = ["x"]\n', 1, "found command and url"),
        ('[[alerts.to]]\nname = "a b"\nurl = "x"\n', 2, "is not a valid sink name"),
        (WEBHOOK + 'title = "{{topics}}"\n', 4, "did you mean {{topic}}?"),
        (WEBHOOK + 'topics = ["a b"]\n', 4, "is not a valid topic pattern"),
        (WEBHOOK + 'labels = {a = "b"}\n', 1, "labels is for alertmanager, not for webhook"),
        (WEBHOOK + 'lables = {a = "b"}\n', 4, "unknown key 'lables' in [alerts.to[0]]; did you mean 'labels'?"),
        (WEBHOOK + "secret = 5\n", 4, "alerts.to[0].secret: expected text in quotes, found 5"),
        ('[[alerts.to]]\nname = "a"\nwebhook = "ftp://x/"\n', 3, "begins with https:// or http://"),
        (WEBHOOK + '[[alerts.to]]\nname = "b"\ncommand = []\n', 6, "alerts.to[1].command"),
        (WEBHOOK + WEBHOOK, 1, 'two sinks have the name "ops"'),
        ('[alerts]\nkinds = ["failure"]\n', 2, "expected 'dead_message'"),
        ('[alerts]\ngroup_interval = "0s"\n', 2, "must be between 1s and 7d"),
    ],
)
def test_an_error_is_reported_with_its_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    with pytest.raises(ConfigProblems, match=re.escape(problem)) as refused:
        read(tmp_path, text)

    assert f"pgrouse.toml:{line}: " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[web]\nurl = "queue.example.com"\n', "expected an address like"),
        ('[web]\nurl = "https://ann:secret@queue.example.com"\n', "without a password"),
        ('[web]\nurl = "https://queue.example.com/?a=b"\n', "expected an address like"),
        ('[web]\nurl = "javascript://queue.example.com"\n', "expected an address like"),
        ('[alerts]\nenvironment = ""\n', "is not a valid environment name"),
        ('[alerts]\nenvironment = "a\\nb"\n', "is not a valid environment name"),
    ],
)
def test_the_source_of_alerts_is_checked(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigProblems, match=re.escape(problem)):
        read(tmp_path, text)


def test_the_address_of_the_dashboard_may_end_with_a_slash(tmp_path: Path) -> None:
    config = read(tmp_path, '[web]\nurl = "https://example.com/queue/"\n[alerts]\nenvironment = "production"\n')

    assert (config.web.url, config.alerts.environment) == ("https://example.com/queue", "production")


def test_a_refused_address_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems) as refused:
        read(tmp_path, '[[alerts.to]]\nname = "a"\nwebhook = "ftp://secret/"\nurl = 5\n')

    assert "secret" not in str(refused.value)


def test_secrets_come_from_the_environment_and_are_never_shown(
    folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "https://ops.example.com/tokentoken")
    (folder / "pgrouse.toml").write_text(
        '[[alerts.to]]\nname = "ops"\nwebhook = "${HOOK}"\nsecret = "signing secret"\nheaders = {Authorization = '
        '"Bearer abc"}\n'
    )

    shown = shell("config", "show")

    assert shown.code == 0
    assert not any(secret in shown.out + shown.err for secret in ("tokentoken", "signing secret", "Bearer abc"))


def test_the_check_creates_every_sink_and_reports_the_invalid_ones(tmp_path: Path) -> None:
    text = (
        '[[alerts.to]]\nname = "a"\nsentry = "https://nothing"\n[[alerts.to]]\nname = "b"\ncommand = '
        '["no-such-program"]\n'
    )

    with pytest.raises(ConfigProblems) as refused:
        validate_sinks(read(tmp_path, text))

    assert [problem.origin.line for problem in refused.value.problems] == [3, 6]
    assert "alerts.to[1].command: there is no program no-such-program" in str(refused.value)


def test_every_command_that_reads_the_configuration_refuses_an_invalid_sink(folder: Path, shell: Shell) -> None:
    (folder / "pgrouse.toml").write_text(WEBHOOK + "webhok = 1\n")

    ended = shell("config", "show")

    assert (ended.code, "pgrouse.toml:4: unknown key 'webhok'" in ended.err) == (78, True)


def test_the_schema_for_editors_has_the_keys_of_every_sink(shell: Shell) -> None:
    described = json.loads(shell("config", "schema").out)["$defs"]
    tables = [described[each["$ref"].rpartition("/")[2]] for each in described["AlertSink"]["anyOf"]]

    assert {key for table in tables for key in table["properties"]} == set(KNOWN_KEYS)
    assert all(each.get("description") for table in tables for each in table["properties"].values())


def test_config_check_checks_the_sinks(folder: Path, shell: Shell) -> None:
    (folder / "pgrouse.toml").write_text('[[alerts.to]]\nname = "a"\ncommand = ["no-such-program"]\n')

    ended = shell("config", "check")

    assert (ended.code, "no-such-program" in ended.err) == (78, True)


def test_a_sink_uses_its_own_rules_or_else_those_of_all(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        '[alerts]\ngroup_wait = "1m"\ngroup_interval = "1h"\nkinds = ["failed"]\n'
        + WEBHOOK
        + 'group_interval = "2h"\ntopics = ["a.*"]\nescalate_after = "30m"\n',
    )

    found = sink_rules(config.alerts, read_sinks(config)[0])

    assert (found["group_wait"], found["group_interval"], found["kinds"], found["topics"], found["escalate_after"]) == (
        60,
        7200,
        ["failed"],
        ["a.*"],
        1800,
    )
    assert "escalate_count" not in found


def test_the_page_names_every_key_of_a_sink_and_every_kind_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/alerts.md").read_text()
    keys = re.findall(r"^\| `(\w+)` \|", _section(page, "Keys of a sink"), re.MULTILINE)
    kinds = re.findall(r"^\| `(\w+)` \|", _section(page, "What is reported"), re.MULTILINE)

    assert sorted(keys) == sorted(KNOWN_KEYS)
    assert sorted(kinds) == sorted(AlertKind.__args__)


def test_every_type_of_sink_has_its_section_with_an_example() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/alerts.md").read_text()
    sections = re.split(r"^### `(\w+)`.*$", _section(page, "Sinks"), flags=re.MULTILINE)[1:]

    assert sorted(sections[::2]) == sorted(TYPES)
    assert [name for name, text in zip(sections[::2], sections[1::2], strict=True) if f"\n{name} = " not in text] == []


def _section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
