"""`pgrouse topic`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgrouse.config.policy.policy_settings import NESTED, SETTINGS, ChannelPolicy, TopicPolicy
from tests.cli.shell import Shell
from tests.server.postgres import Database
from tests.sql.queue import Queue


def row(queue: Queue, topic: str = "mail") -> Any:
    return queue.row("SELECT * FROM messages.topic WHERE topic = %s", [topic])


# set, unset


def test_several_settings_are_set_at_once_and_reported_as_old_and_new(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse(
        "topic", "set", "mail", "max_attempts=5", "lock_duration=2m", "backoff.kind=constant", "dequeue_rate=0.5"
    )

    assert (ended.code, ended.out.splitlines()[:2]) == (
        0,
        ["mail: max_attempts inherit -> 5", "mail: lock_duration inherit -> 2m"],
    )
    assert (row(queue).max_attempts, row(queue).backoff, row(queue).dequeue_rate) == (5, {"kind": "constant"}, 0.5)


def test_the_help_lists_every_setting_with_its_values_and_meaning(shell: Shell) -> None:
    text = " ".join(shell("topic", "set", "--help").out.split())

    names = {
        f"{name}.{part}" if part else name
        for model in (TopicPolicy, ChannelPolicy)
        for name in SETTINGS[model]
        for part in ("", *(SETTINGS[NESTED[name]] if name in NESTED else ()))
    }
    assert [name for name in names if f" {name} " not in text] == []
    assert f"max_depth {SETTINGS[TopicPolicy]['max_depth'].meaning} [0 or more messages, or none]" in text


def test_json_reports_each_change(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", lock_duration="1 minute")

    changed = pgrouse("topic", "set", "mail", "lock_duration=2m", "backoff=none", "--json").object

    assert changed["dry_run"] is False
    assert changed["changes"] == [
        {"topic": "mail", "channel": None, "setting": "lock_duration", "old": 60.0, "new": 120.0},
        {"topic": "mail", "channel": None, "setting": "backoff", "old": None, "new": {"kind": "none"}},
    ]


def test_a_topic_is_reset_to_the_defaults(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5)
    queue.call("pause", "mail")

    ended = [pgrouse("topic", "reset", "mail", "--json") for _ in range(2)]

    assert [(each.code, each.object) for each in ended] == [
        (0, {"topic": "mail", "removed": True}),
        (1, {"topic": "mail", "removed": False}),
    ]
    assert row(queue) is None
    assert pgrouse("topic", "reset", "*").code == 2


def test_a_channel_has_its_own_limits(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse("topic", "set", "mail", "--channel", "acme", "concurrency=2", "min_interval=1s")

    assert ended.out.splitlines()[0] == "mail, channel acme: concurrency inherit -> 2"
    assert queue.value("SELECT concurrency FROM messages.channel WHERE topic = 'mail' AND channel = 'acme'") == 2


def test_a_schema_is_read_from_a_file_or_from_the_command_line(pgrouse: Shell, queue: Queue, folder: Path) -> None:
    (folder / "order.json").write_text('{"type": "object"}')

    pgrouse("topic", "set", "mail", "payload_schema=@order.json")
    from_file = row(queue).payload_schema
    pgrouse("topic", "set", "mail", 'payload_schema={"type": "array"}')

    assert (from_file, row(queue).payload_schema) == ({"type": "object"}, {"type": "array"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["max_attempts=-5"], "max_attempts: must be at least 0, found '-5'"),
        (["lock_duration=soon"], "lock_duration: expected a duration like"),
        (["max_atempts=5"], "unknown setting 'max_atempts'; did you mean 'max_attempts'?"),
        (["backoff.bse=5s"], "unknown setting 'bse' in [backoff]; did you mean 'base'?"),
        (["backoff=none", "backoff.base=5s"], "backoff is given as a whole already"),
        (["ttl=1s", "ttl=2s"], "ttl is given twice: '1s' and '2s'"),
        (["ttl"], "expected a policy setting and its value like max_attempts=5, found 'ttl'"),
        (["lock_duration=none"], "lock_duration: a topic cannot be without it: set a value or 'inherit'"),
        (["payload_schema={nonsense"], "payload_schema: is not valid JSON"),
        (["payload_schema=@none.json"], "none.json cannot be read (No such file or directory)"),
        (['payload_schema={"type": "objekt"}'], "payload_schema: type: "),
        (["--channel", "acme", "max_concurrency=1"], "unknown setting 'max_concurrency'; did you mean 'concurrency'?"),
    ],
)
def test_an_invalid_value_is_refused_with_setting_value_and_fix(
    pgrouse: Shell, queue: Queue, given: list[str], said: str
) -> None:
    ended = pgrouse("topic", "set", "mail", *given)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert row(queue) is None


def test_an_error_that_only_the_server_finds_is_reported_with_its_hint(pgrouse: Shell) -> None:
    ended = pgrouse("topic", "set", "a b", "max_attempts=5")

    assert ended.code == 1
    assert ended.err.startswith('pgrouse: "a b" is no name of a topic (SQLSTATE 22023): use 1 to 200 of')


def test_a_user_without_the_right_gets_the_name_of_the_role_it_needs(
    pgrouse: Shell, acting_as: Callable[[str], None]
) -> None:
    acting_as("messages_analyst")

    ended = pgrouse("topic", "set", "mail", "max_attempts=5")

    assert ended.code == 1
    assert "needs messages_operator" in ended.err


def test_an_operator_may_set_a_policy(pgrouse: Shell, acting_as: Callable[[str], None], queue: Queue) -> None:
    acting_as("messages_operator")

    assert pgrouse("topic", "set", "mail", "max_attempts=5").code == 0
    assert pgrouse("topic", "set", "mail", "--channel", "acme", "concurrency=5").code == 0
    assert pgrouse("topic", "pause", "mail").code == 0
    assert pgrouse("topic", "resume", "mail").code == 0
    assert row(queue).max_attempts == 5


def test_unset_settings_are_inherited_again(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5, lock_duration="1 minute", notify="off")

    ended = pgrouse("topic", "unset", "mail", "max_attempts", "lock_duration")

    assert ended.out == "mail: max_attempts 5 -> inherit\nmail: lock_duration 1m -> inherit\n"
    assert (row(queue).max_attempts, row(queue).lock_duration, row(queue).notify) == (None, None, "off")


def test_unset_removes_only_optional_defaults(pgrouse: Shell, queue: Queue) -> None:
    assert pgrouse("topic", "unset", "*", "max_attempts").code == 0
    refused = pgrouse("topic", "unset", "*", "lock_duration")

    assert row(queue, "*").max_attempts is None
    assert refused.code == 2
    assert "lock_duration: the defaults cannot be without it" in refused.err


def test_an_unknown_setting_cannot_be_unset(pgrouse: Shell) -> None:
    assert "did you mean 'max_attempts'?" in pgrouse("topic", "unset", "mail", "max_atempts").err
    assert "expected the name of a policy setting" in pgrouse("topic", "unset", "mail", "ttl=5s").err


# show, list


def test_each_setting_is_shown_with_its_value_and_its_source(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5)

    shown = pgrouse("topic", "show", "mail", "--json").object
    lines = {line.split()[0]: line.split()[1:] for line in pgrouse("topic", "show", "mail").out.splitlines()}

    assert shown["policy"]["max_attempts"] == {"value": 5, "from": "mail"}
    assert shown["policy"]["lock_duration"] == {"value": 30.0, "from": "*"}
    assert shown["policy"]["ttl"] == {"value": None, "from": None}
    assert (lines["max_attempts"], lines["lock_duration"], lines["ttl"]) == (["5", "mail"], ["30s", "*"], ["-", "-"])


def test_a_channel_is_shown_with_what_it_inherits_from_its_topic(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", channel_min_interval="1 s")
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('mail', 'acme', 2)")

    shown = pgrouse("topic", "show", "mail", "--channel", "acme", "--json").object

    assert shown["policy"] == {
        "concurrency": {"value": 2, "from": "channel acme"},
        "min_interval": {"value": 1.0, "from": "mail"},
    }


def test_pauses_channels_and_subscriptions_are_shown(pgrouse: Shell, queue: Queue) -> None:
    queue.call("pause", "mail", "too loud", resume_in="10 minutes")
    queue.call("pause", "mail", channel="acme")
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2")
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('mail', 'audit'), ('a', 'mail')")

    output = pgrouse("topic", "show", "mail").out
    shown = pgrouse("topic", "show", "mail", "--json").object

    user = queue.value("SELECT session_user::text")
    assert f"by {user}, for another 10m: too loud" in output
    assert "channel acme has been paused for" in output
    assert "until it is resumed" in output
    assert "channel acme: concurrency=2" in output
    assert "audit gets what is published to mail" in output
    assert shown["paused"]["topic mail"]["reason"] == "too loud"
    assert [each["channel"] for each in shown["channels"]] == ["acme"]
    assert (shown["subscribers"], shown["subscriptions"]) == (["audit"], ["a"])


def test_topics_are_listed_with_their_own_settings(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5, lock_duration="2 minutes")
    queue.conn.execute("INSERT INTO messages.topic (topic) VALUES ('idle')")
    queue.call("pause", "mail", "why")

    rows = {each["topic"]: each for each in pgrouse("topic", "list", "--json").objects}
    lines = pgrouse("topic", "list").out.splitlines()

    assert list(rows) == ["*", "idle", "mail"]
    assert rows["mail"]["policy"] == {"max_attempts": 5, "lock_duration": 120.0}
    assert rows["mail"]["paused"]["reason"] == "why"
    assert lines[-1].split()[-2:] == ["max_attempts=5", "lock_duration=2m"]
    assert lines[-2].split() == ["idle", "unhandled", "-", "nothing"]


@pytest.mark.parametrize("role", ["messages_operator", "messages_analyst"])
def test_operators_and_analysts_may_read_policies(pgrouse: Shell, acting_as: Callable[[str], None], role: str) -> None:
    acting_as(role)

    assert pgrouse("topic", "list").code == 0
    assert pgrouse("topic", "show", "mail").code == 0


# pause, resume


def test_a_topic_is_paused_and_resumed(pgrouse: Shell, queue: Queue) -> None:
    paused = pgrouse("topic", "pause", "mail", "--reason", "too loud", "--for", "10m", "--json").object
    why = row(queue).paused_reason
    resumed = pgrouse("topic", "resume", "mail")

    assert (paused["topic"], paused["paused"], why) == ("mail", True, "too loud")
    assert paused["resume_at"] is not None
    assert (resumed.code, resumed.out) == (0, "resumed topic mail\n")
    assert row(queue).paused_at is None


def test_a_channel_is_paused_alone(pgrouse: Shell, queue: Queue) -> None:
    assert pgrouse("topic", "pause", "mail", "--channel", "acme").out == (
        "paused channel acme of topic mail until it is resumed\n"
    )
    assert queue.value("SELECT channel FROM messages.channel WHERE paused_at IS NOT NULL") == "acme"


# apply, and migrate


FILE = """
[topics."*"]
max_attempts = 3
[topics.mail]
lock_duration = "2m"
payload_schema = "@order.json"
subscriptions = ["user.changed"]
[topics.mail.channels.acme]
concurrency = 2
"""
SAID = [
    "*: max_attempts 1 -> 3",
    "mail: lock_duration inherit -> 2m",
    'mail: payload_schema inherit -> {"type": "object"}',
    "mail, channel acme: concurrency inherit -> 2",
    "mail: + subscription to user.changed",
]


@pytest.fixture
def file(folder: Path) -> Path:
    """A configuration that names policies."""
    (folder / "order.json").write_text('{"type": "object"}')
    file = folder / "pgrouse.toml"
    file.write_text(FILE)
    return file


@pytest.mark.usefixtures("file")
def test_policies_of_the_file_are_applied_once(pgrouse: Shell, queue: Queue) -> None:
    shown = pgrouse("topic", "apply", "--dry-run").out.splitlines()
    untouched = row(queue)
    first = pgrouse("topic", "apply").out.splitlines()
    second = pgrouse("topic", "apply").out

    assert (shown, untouched) == ([f"would change {each}" for each in SAID], None)
    assert first == SAID
    assert second == "the policies are up to date: nothing to change\n"


def test_a_configuration_without_policies_is_reported(pgrouse: Shell) -> None:
    ended = pgrouse("topic", "apply", "--json")

    assert ended.object == {"changes": [], "dry_run": False}
    assert ended.err == "the configuration has no policies: write settings into its [topics] tables\n"


def test_the_file_can_exclude_policies_from_migrate_unless_a_flag_includes_them(
    pgrouse: Shell, queue: Queue, file: Path
) -> None:
    file.write_text(f'[database]\napply_policies = "never"\n{FILE}')

    assert "max_attempts" not in pgrouse("migrate").out
    assert row(queue) is None

    assert pgrouse("migrate", "--apply-policies").out.splitlines()[-5:] == SAID


@pytest.mark.usefixtures("file")
def test_config_check_reports_differences_and_exits_with_1(pgrouse: Shell, queue: Queue) -> None:
    before = pgrouse("config", "check")
    as_json = pgrouse("config", "check", "--json")
    pgrouse("migrate")
    after = pgrouse("config", "check")

    assert (before.code, as_json.code, after.code) == (1, 1, 0)
    assert before.out.splitlines()[:-1] == [f"not in force: {each}" for each in SAID]
    assert before.out.splitlines()[-1].endswith("what stands above is not in force: run `pgrouse migrate`")
    assert (as_json.object["ok"], len(as_json.object["not_in_force"])) == (False, len(SAID))
    assert after.out.startswith("ok: ")
    assert row(queue) is not None


@pytest.mark.usefixtures("file")
def test_config_check_reports_what_it_could_not_read_from_the_database(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", "host=127.0.0.1 port=1 connect_timeout=2")

    ended, as_json = shell("config", "check"), shell("config", "check", "--json")

    assert (ended.code, as_json.code) == (0, 0)
    assert ended.err.startswith("not checked: whether policies and schedules are in force: ")
    assert "127.0.0.1" in as_json.object["not_checked"]


@pytest.mark.usefixtures("file")
def test_config_check_before_the_first_migrate_says_so(
    shell: Shell, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", empty_database.dsn)

    ended = shell("config", "check")

    assert ended.code == 0
    assert (
        "not checked: whether policies and schedules are in force: the schema is not installed: run `pgrouse"
        in ended.err
    )


@pytest.mark.parametrize(
    "section", ["", '[database]\napply_policies = "migrate"\n', '[database]\napply_policies = "run"\n']
)
def test_migrate_applies_the_policies(pgrouse: Shell, queue: Queue, file: Path, section: str) -> None:
    file.write_text(f"{section}{FILE}")

    assert pgrouse("migrate", "--dry-run").out.splitlines()[-1] == f"would change {SAID[-1]}"
    assert row(queue) is None
    assert pgrouse("migrate").out.splitlines()[-5:] == SAID


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[topics."*"]\nmax_attempts = "inherit"',
            'pgrouse.toml:2: topics."*".max_attempts: the defaults have nothing',
        ),
        ('[topics."*"]\nhandler = "a:b"', 'pgrouse.toml:2: topics."*".handler: is for a topic with a name'),
        ('[topics.a]\nlock_duration = "none"', "pgrouse.toml:2: topics.a.lock_duration: a topic cannot be without it"),
        (
            "[topics.a]\nmax_atempts = 1",
            "pgrouse.toml:2: unknown key 'max_atempts' in [topics.a]; did you mean 'max_attempts'?",
        ),
        ("[topics.a.channels.b]\nconcurency = 1", "did you mean 'concurrency'?"),
        ("[topics.a]\nconcurrency = 1\nmax_attempts = 2", "topics.a: handler is missing"),
        ("[topics.a]\n", "topics.a: handler is missing"),
        ('[topics.a]\nsubscriptions = ["a b"]', "topics.a.subscriptions[0]: is no topic name"),
        ('[topics.a]\npayload_schema = "@x.json"', "x.json cannot be read"),
    ],
)
def test_an_error_in_the_file_is_reported_with_its_line(shell: Shell, folder: Path, text: str, expected: str) -> None:
    (folder / "pgrouse.toml").write_text(text)

    ended = shell("config", "check")

    assert ended.code == 78
    assert expected in ended.err


@pytest.mark.usefixtures("file")
def test_a_table_of_policies_alone_needs_no_handler(shell: Shell) -> None:
    assert "0 topics" in shell("config", "check").out


@pytest.mark.usefixtures("file")
def test_a_daemon_with_policies_but_no_handler_exits_with_an_error(shell: Shell) -> None:
    ended = shell("run")

    assert ended.code == 78
    assert "there is no handler" in ended.err


def test_a_pause_has_one_end(pgrouse: Shell) -> None:
    ended = pgrouse("topic", "pause", "mail", "--for", "5m", "--until", "2027-01-01T00:00:00Z")

    assert (ended.code, ended.out) == (2, "")
    assert "--for and --until exclude each other" in ended.err


def test_a_resume_that_has_no_effect_prints_the_command_that_resumes_the_defaults(pgrouse: Shell) -> None:
    ended = pgrouse("topic", "resume", "*")

    assert (ended.code, ended.err) == (1, "pgrouse: topic * is not paused: see `pgrouse topic show '*'`\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["set", "mail", "backoff=constant"],
            "backoff: expected its parts separately, like backoff.kind=…, found 'constant'",
        ),
        (["unset", "mail", "backoff.kind"], "expected a whole policy setting like 'backoff', found 'backoff.kind'"),
    ],
)
def test_a_setting_of_parts_is_set_by_parts_and_unset_as_a_whole(
    pgrouse: Shell, arguments: list[str], said: str
) -> None:
    ended = pgrouse("topic", *arguments)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_lifted_limit_is_shown_as_none(pgrouse: Shell) -> None:
    output = pgrouse("topic", "set", "mail", "ttl=none", "max_concurrency=none", "lock_expired_delay=0s").out
    pgrouse("topic", "set", "mail", "--channel", "ann", "concurrency=none")

    shown = pgrouse("topic", "show", "mail").out
    values = {line.split()[0]: line.split()[1] for line in shown.splitlines()}

    assert "mail: ttl inherit -> none" in output.splitlines()
    assert (values["ttl"], values["max_concurrency"], values["lock_expired_delay"]) == ("none", "none", "0s")
    assert "channel ann: concurrency=none" in shown
    assert "ttl=none" in pgrouse("topic", "list").out


def test_a_topic_without_its_own_policy_is_reported(pgrouse: Shell) -> None:
    pgrouse("topic", "set", "mail", "ttl=1h")

    assert pgrouse("topic", "show", "mial").err == "topic mial sets nothing of its own: see `pgrouse topic list`\n"
    assert pgrouse("topic", "show", "mail").err == ""
    assert pgrouse("topic", "show", "*").err == ""


def test_waiting_messages_of_a_topic_are_deleted_and_running_ones_are_not(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(3, "mail")
    (runs,) = queue.claim("mail", limit=1)
    other = queue.publish("other")

    would = pgrouse("topic", "purge", "mail", "--dry-run")
    done = pgrouse("topic", "purge", "mail", "--yes")
    again = pgrouse("topic", "purge", "mail", "--yes", "--json")

    assert would.out == "would delete 2 messages of topic mail: run it again without --dry-run\n"
    assert (done.code, done.out) == (0, "deleted 2 messages\n")
    assert again.object == {"messages": 0, "at_least": False}
    assert queue.ids() == [runs.id, other]
