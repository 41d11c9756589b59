"""The configuration: its sources, and its errors."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pgrouse.config import config
from pgrouse.config.config import Config, HandlersSettings, flat_items, load
from pgrouse.config.schedules import ScheduleSettings
from pgrouse.config.source import ConfigProblems, show_key
from pgrouse.errors import ConfigError, ExitCode

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes pgrouse.toml and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "pgrouse.toml"
        path.write_bytes(text.encode())
        return path

    return write


def problems(path: Path, environ: dict[str, str] | None = None) -> list[str]:
    """Return the error of an invalid configuration, without the folder."""
    with pytest.raises(ConfigProblems) as caught:
        load(path, environ or {})
    return [line.replace(f"{path.parent}/", "") for line in str(caught.value).splitlines()]


# Sources of values


def test_a_configuration_without_a_file_has_all_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    found = load(environ={})

    assert found.path is None
    assert found.topics == {}
    assert (found.worker.concurrency, found.worker.poll_interval) == (100, timedelta(seconds=5))
    assert str(found.origin("worker", "poll")) == "default"


def test_the_file_in_the_working_directory_is_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write("[worker]\nthreads = 3").parent)

    assert load(environ={}).worker.threads == 3


def test_the_variable_pgrouse_config_names_another_file(write: Write) -> None:
    path = write("[worker]\nthreads = 3")

    found = load(environ={"PGROUSE_CONFIG": str(path)})

    assert (found.worker.threads, found.path) == (3, path)


def test_the_environment_overrides_the_file_and_flags_override_both(write: Write) -> None:
    path = write("[worker]\nthreads = 1\nclaim_connections = 1\nconcurrency = 1")
    environ = {"PGROUSE_WORKER__CLAIM_CONNECTIONS": "2", "PGROUSE_WORKER__CONCURRENCY": "2"}

    found = load(path, environ, {"worker": {"concurrency": 3, "threads": None}})

    assert (found.worker.threads, found.worker.claim_connections, found.worker.concurrency) == (1, 2, 3)


def test_an_empty_variable_is_ignored(write: Write) -> None:
    path = write("[worker]\nthreads = 3")

    assert load(path, {"PGROUSE_WORKER__THREADS": "", "PGROUSE_CONFIG": ""}).worker.threads == 3


def test_variables_are_read_as_the_type_of_their_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {
        "PGROUSE_DATABASE__PREPARE": "false",
        "PGROUSE_WORKER__POLL_INTERVAL": "250ms",
        "PGROUSE_WORKER__NAME": "7",
        "PGROUSE_HANDLERS__ALLOWED_MODULES": "shop, acme.jobs",
        "PGROUSE_LOG__LEVEL": "debug",
    }

    found = load(environ=environ)

    assert found.database.prepare is False
    assert found.worker.poll_interval == timedelta(milliseconds=250)
    assert found.worker.name == "7"
    assert found.handlers.allowed_modules == ["shop", "acme.jobs"]
    assert found.log.level == "debug"


@pytest.mark.parametrize(
    ("file", "environ", "dsn"),
    [
        ("", {}, ""),
        ("", {"DATABASE_URL": "dbname=url"}, "dbname=url"),
        ("", {"DATABASE_URL": "dbname=url", "PGROUSE_DSN": "dbname=own"}, "dbname=own"),
        ('[database]\ndsn = "dbname=file"', {"PGROUSE_DSN": "dbname=own"}, "dbname=own"),
        # DATABASE_URL often belongs to another program: it must not lead a migration into that program's database.
        ('[database]\ndsn = "dbname=file"', {"DATABASE_URL": "dbname=url"}, "dbname=file"),
    ],
)
def test_the_dsn_comes_from_its_variable_the_file_or_libpq(
    write: Write, file: str, environ: dict[str, str], dsn: str
) -> None:
    assert load(write(file), environ).database.dsn == dsn


# Variables inside the file


def test_strings_of_the_file_may_name_variables(write: Write) -> None:
    path = write('[database]\ndsn = "host=${HOST} password=${PASSWORD:-none}"\n[worker]\nname = "$${HOST} costs $5"')

    found = load(path, {"HOST": "db"})

    assert found.database.dsn == "host=db password=none"
    assert found.worker.name == "${HOST} costs $5"


def test_an_unset_variable_is_reported_with_its_line(write: Write) -> None:
    path = write('[database]\n\ndsn = "host=${NO_SUCH_HOST}"')

    assert problems(path) == [
        "pgrouse.toml:3: database.dsn needs the environment variable NO_SUCH_HOST, which is not set: "
        "set it, or write ${NO_SUCH_HOST:-default}"
    ]


# Errors

WRONG = {
    "[worker]\nconurrency = 1": "pgrouse.toml:2: unknown key 'conurrency' in [worker]; did you mean 'concurrency'?",
    "[worker]\nzzz = 1": "pgrouse.toml:2: unknown key 'zzz' in [worker]; known keys: "
    "name, concurrency, threads, claim_connections, "
    "claim_batch_size, prefetch, poll_interval, degraded_poll_interval, shutdown_timeout, maintenance_interval, "
    "processes",
    '[topics.a]\nhandler = "m:f"\nbackoff = {kind = "constant", delay = "1s"}': "pgrouse.toml:3: unknown key 'delay' "
    "in [topics.a.backoff]; known keys: kind, base, step, factor, cap, jitter, max_total",
    "[wroker]\nthreads = 1": "pgrouse.toml:1: unknown key 'wroker'; did you mean 'worker'?",
    '[topics.a]\nhandler = "m:f"\nisolatoin = "process"': "pgrouse.toml:3: unknown key 'isolatoin' in [topics.a]; "
    "did you mean 'isolation'?",
    '[worker]\nthreads = "5"': "pgrouse.toml:2: worker.threads: expected a whole number, found '5'",
    "[worker]\nthreads = 2.5": "pgrouse.toml:2: worker.threads: expected a whole number, found 2.5",
    "[worker]\nthreads = true": "pgrouse.toml:2: worker.threads: expected a whole number, found true",
    "[worker]\nthreads = 0": "pgrouse.toml:2: worker.threads: must be at least 1, found 0",
    "[worker]\nclaim_connections = 17": "pgrouse.toml:2: worker.claim_connections: must be at most 16, found 17",
    '[worker]\npoll_interval = "5 apples"': "pgrouse.toml:2: worker.poll_interval: "
    'expected a duration like "250ms", "5s", "1h30m" '
    "or \"1d\", or a number of seconds, found '5 apples'",
    "[worker]\nshutdown_timeout = -1": "pgrouse.toml:2: worker.shutdown_timeout: "
    'expected a duration like "250ms", "5s", "1h30m" or '
    '"1d", or a number of seconds, found -1',
    "[worker]\nmaintenance_interval = nan": "pgrouse.toml:2: worker.maintenance_interval: "
    'expected a duration like "250ms", "5s", "1h30m" or '
    '"1d", or a number of seconds, found nan',
    '[worker]\nmaintenance_interval = "2h"': "pgrouse.toml:2: worker.maintenance_interval: "
    "must be between 100ms and 1h, found 2h",
    '[worker]\nname = "a\\nb"': "pgrouse.toml:2: worker.name: must be 1 to 200 printable characters, found 'a\\nb'",
    "[database]\nprepare = 1": "pgrouse.toml:2: database.prepare: expected true or false, found 1",
    '[handlers]\nallowed_modules = "shop"': "pgrouse.toml:2: handlers.allowed_modules: "
    'expected a list like ["a", "b"], found \'shop\'',
    '[handlers]\nallowed_modules = ["a", 3]': "pgrouse.toml:2: handlers.allowed_modules[1]: "
    "expected text in quotes, found 3",
    '[handlers]\nallowed_modules = ["a b"]': "pgrouse.toml:2: handlers.allowed_modules[0]: "
    'expected the name of a module like "shop.jobs", '
    "or \"*\", found 'a b'",
    "[topics.a]\nconcurrency = 1": "pgrouse.toml:1: topics.a: handler is missing: "
    'name the function like "module:function"',
    '[topics.a]\nhandler = "a.b"': "pgrouse.toml:2: topics.a.handler: expected \"module:function\", found 'a.b'",
    '[topics.a]\nhandler = "m:f"\nisolation = "thread"': "pgrouse.toml:3: topics.a.isolation: expected 'none' or "
    "'process', found 'thread'",
    '[topics."a b"]\nhandler = "m:f"': 'pgrouse.toml:1: topics."a b": is no topic name: '
    "1 to 200 of A-Z a-z 0-9 . _ : - "
    "and a letter or digit first; a pattern ends with .* or .**, found 'a b'",
    "topics = 3": "pgrouse.toml:1: topics: expected a table of keys, found 3",
    "[[worker]]\nthreads = 1": "pgrouse.toml:1: worker: expected a table of keys, found a list",
    "[log]\nlevel = 3": "pgrouse.toml:2: log.level: expected 'debug', 'info', 'warning' or 'error', found 3",
    "[database]\ndsn = 4711": "pgrouse.toml:2: database.dsn: expected text in quotes",
    "[topics.order.created]\nhandler = 'm:f'": "pgrouse.toml:1: unknown key 'created' in "
    "[topics.order]; if the topic is order.created, "
    'quote its name: [topics."order.created"]',
    '[database]\ndsn = "postgresql+asyncpg://shop@db/app"': "pgrouse.toml:2: database.dsn: "
    "this is an address for SQLAlchemy: leave out +asyncpg",
    '[database]\ndsn = "not one"': "pgrouse.toml:2: database.dsn: expected a connection string like "
    '"postgresql://user@host/database" or "host=... dbname=..."',
}


@pytest.mark.parametrize(("text", "expected"), WRONG.items(), ids=[expected[:60] for expected in WRONG.values()])
def test_an_error_is_reported_with_file_line_key_and_fix(write: Write, text: str, expected: str) -> None:
    assert problems(write(text)) == [expected]


def test_all_errors_are_reported_together_in_the_order_of_the_file(write: Write) -> None:
    path = write('[worker]\nconurrency = 1\npoll_interval = "x"\n[log]\nformat = "xml"')

    errors = problems(path, {"PGROUSE_WORKER__CLAIM_CONNECTIONS": "many"})

    assert [line.split(": ")[0] for line in errors] == [
        "PGROUSE_WORKER__CLAIM_CONNECTIONS",
        "pgrouse.toml:2",
        "pgrouse.toml:3",
        "pgrouse.toml:5",
    ]


def test_the_line_is_right_for_every_style_of_the_file(write: Write) -> None:
    text = '''# [worker]
        [database]  # with a comment
        dsn = """
        [worker]
        threads = "no"
        """
        worker.threads = 1
        [topics]
        plain = { handler = "m:f", isolation = "x" }

        [topics."a.b"] # "quoted"
        handler = [
          "m",
          "f",
        ]
        '''

    errors = problems(write(text.replace("\n", "\r\n")))

    assert [line.split(": ")[:2] for line in errors] == [
        ["pgrouse.toml:3", "database.dsn"],
        ["pgrouse.toml:7", "unknown key 'worker' in [database]; known keys"],
        ["pgrouse.toml:9", "topics.plain.isolation"],
        ["pgrouse.toml:12", 'topics."a.b".handler'],
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[worker]\nthreads = ", "pgrouse.toml:2: is no TOML: Invalid value"),
        (b"[worker]\nthreads = 1\nthreads = 2\n", "pgrouse.toml:3: is no TOML: Cannot overwrite a value, column 12"),
        (b"[worker\nthreads = 1", "pgrouse.toml:1: is no TOML"),
        (b"# \xff\n", "pgrouse.toml:1: is not UTF-8: save the file in that encoding"),
        (b"\xff\xfe[\x00", "pgrouse.toml:1: is not UTF-8"),
        (b"\xef\xbb\xbf[worker]\n", "pgrouse.toml:1: begins with a byte order mark: save the file as UTF-8 without"),
        (b"[worker]\nthreads = " + b"1" * 5000, "pgrouse.toml: is no TOML: Exceeds the limit"),
        (b"x = " + b"[" * 5000, "pgrouse.toml: is nested too deeply"),
    ],
)
def test_invalid_toml_is_reported_with_its_line(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "pgrouse.toml"
    path.write_bytes(content)

    (error,) = problems(path)

    assert error.startswith(expected)


def test_a_missing_file_is_reported_with_the_fix(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.toml") == [
        "no.toml: cannot be read (No such file or directory): run `pgrouse init`, or name the file by --config"
    ]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert problems(tmp_path)[0].endswith("cannot be read (Is a directory)")


def test_an_invalid_variable_is_reported_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"PGROUSE_WORKER__THREDS": "1", "PGROUSE_LOG__FORMAT": "xml", "PGROUSE_TOPICS__A": "m:f"}

    with pytest.raises(ConfigProblems) as caught:
        load(environ=environ)

    assert str(caught.value).splitlines() == [
        "PGROUSE_LOG__FORMAT: log.format: expected 'auto', 'console' or 'json', found 'xml'",
        "PGROUSE_TOPICS__A: topics.a: expected a table of keys, found 'm:f'",
        "PGROUSE_WORKER__THREDS: unknown key 'threds' in [worker]; did you mean 'threads'?",
    ]


def test_variables_of_other_programs_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert load(environ={"PGROUSE_TEST_PG": "15", "PGPORT": "1"}) == load(environ={})


def test_an_invalid_configuration_ends_commands_with_78() -> None:
    assert issubclass(ConfigProblems, ConfigError)
    assert ConfigProblems([]).exit_code == ExitCode.BAD_CONFIG == 78


# Secrets


def test_no_error_repeats_a_connection_string(write: Write) -> None:
    path = write('[database]\ndsn = "host=h password=s3cret oops"\nlisten_dsn = 3')

    assert "s3cret" not in "".join(problems(path))


def test_a_printed_configuration_shows_no_connection_string(write: Write) -> None:
    found = load(write('[database]\ndsn = "host=h password=s3cret"'), {})

    assert "s3cret" not in f"{found!r} {found}"


# The finished object


def test_a_configuration_is_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().worker.threads = 3  # type: ignore[misc]


def test_a_configuration_can_be_pickled(write: Write) -> None:
    path = write('[topics."a.b"]\nhandler = "m:f"')
    found = load(path, {})

    copy = pickle.loads(pickle.dumps(found))

    assert copy == found
    assert (copy.path, str(copy.origin("topics", "a.b", "handler"))) == (path, f"{path}:2")


def test_folders_of_handlers_are_relative_to_the_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('[handlers]\nimport_path = [".", "src", "/opt/shop"]')
    monkeypatch.chdir("/")

    assert load(path, {}).handlers.import_path == [path.parent, path.parent / "src", Path("/opt/shop")]


def test_the_schema_for_editors_has_every_key_with_its_meaning() -> None:
    schema = Config.model_json_schema()

    worker = schema["$defs"]["WorkerSettings"]
    assert worker["additionalProperties"] is False
    assert set(worker["properties"]) == set(config.WorkerSettings.model_fields)
    assert all(each.get("description") for each in worker["properties"].values())
    json.dumps(schema)


# Sources of handlers


@pytest.fixture
def rules(tmp_path: Path) -> Callable[..., HandlersSettings]:
    """Handlers with a folder that has a module, a package, and a module of a name in the standard library.

    The module is `own`, the package `shop`.
    """
    (tmp_path / "own.py").write_text("raise SystemExit('was imported')")
    (tmp_path / "json.py").touch()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("raise SystemExit('was imported')")
    return lambda *allow: HandlersSettings(import_path=[tmp_path], allowed_modules=list(allow))


@pytest.mark.parametrize(
    ("allow", "module", "permitted"),
    [
        ([], "own", True),
        ([], "shop.jobs", True),
        ([], "nowhere", False),
        ([], "os", False),
        ([], "json", False),
        ([], "click", False),
        (["click"], "click", True),
        (["click"], "click.core", True),
        (["click"], "clicks", False),
        (["click.core"], "click", False),
        (["*"], "subprocess", True),
    ],
)
def test_handlers_are_imported_from_folders_or_named_modules(
    rules: Callable[..., HandlersSettings], allow: list[str], module: str, permitted: bool
) -> None:
    assert rules(*allow).permits(module) is permitted
    assert "own" not in sys.modules


# The reference page


def test_the_reference_page_has_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text()
    documented = dict(re.findall(r"^\| `([^`]+\.[^`]+)` \| [^|]+ \| ([^|]+) \|", page, re.MULTILINE))
    schedule = ScheduleSettings(topic="t", cron="@daily", payload=None)
    sample = Config(topics={"NAME": config.TopicSettings(handler="module:function")}, schedules={"NAME": schedule})
    handlers = {"handlers.import_path": ["."]}

    expected = {show_key(key): _shown(handlers.get(show_key(key), value)) for key, value in flat_items(sample)}

    expected |= dict.fromkeys(("topics.NAME.handler", "schedules.NAME.topic", "schedules.NAME.cron"), "none")
    expected["schedules.NAME.payload"] = "`{}`"
    assert documented == expected


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"
