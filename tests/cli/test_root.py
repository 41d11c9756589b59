"""`pgrouse` itself: help, errors in the command line, and the exit codes of database errors."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from typing import Any

import click
import psycopg
import pytest
from psycopg import sql

from pgrouse.cli.root import COMMANDS, root
from pgrouse.errors import ConfigError
from pgrouse.terminal.error_report import explain_error, report
from tests.cli.shell import PGROUSE, Shell
from tests.daemon.proxy import Proxy
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Background, Queue

UNREACHABLE = "host=127.0.0.1 port=1"
LOCK_IS_AWAITED = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'messages.topic'::regclass)"


def test_help_lists_every_command(shell: Shell) -> None:
    ended = shell("--help")

    assert ended.code == 0
    assert all(f"  {name} " in ended.out for name in COMMANDS)


def test_pgrouse_without_a_command_shows_help_with_the_exit_code_of_usage(shell: Shell) -> None:
    ended = shell()

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: pgrouse [OPTIONS] COMMAND")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_the_first_line_of_each_commands_help(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")

    command = getattr(import_module(module), attribute)

    assert command.name == name
    assert inspect.cleandoc(command.help).split("\n\n")[0] == COMMANDS[name][1]


def test_the_version_is_that_of_the_package(shell: Shell) -> None:
    assert shell("--version").out == f"pgrouse {version('pgrouse')}\n"


@pytest.mark.parametrize(
    ("argument", "environ"),
    [
        ("--help", {}),
        ("--version", {}),
        ("", {"_PGROUSE_COMPLETE": "bash_complete", "COMP_WORDS": "pgrouse st", "COMP_CWORD": "1"}),
    ],
)
def test_help_version_and_command_names_load_no_heavy_library(argument: str, environ: dict[str, str]) -> None:
    code = (
        "import atexit, sys; from pgrouse.cli import main; sys.argv[1:] = sys.argv[1].split();"
        "atexit.register(lambda: print([m for m in ('psycopg', 'pydantic', 'rich', 'structlog') if m in sys.modules]));"
        "main()"
    )

    done = subprocess.run(
        [sysconfig.get_path("scripts") + "/python", "-c", code, argument],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_imports_no_library_that_only_processes_need_which_log_and_serve(database: Database) -> None:
    # All in one process: it has then imported what any of them has. `run` is such a process.
    helps = [[name, "--help"] for name in COMMANDS if name != "run"]
    calls = [["publish", "a.b", "1"], ["stats"], ["topic", "list"], ["message", "list"], ["dead", "list"], ["migrate"]]
    code = (
        "import json, sys; from pgrouse.cli import main;"
        "codes = [main(each) for each in json.loads(sys.argv[1])];"
        "print(codes, [m for m in ('structlog', 'rich', 'jinja2', 'starlette', 'uvloop') if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([*helps, *calls])],
        env={**os.environ, "PGROUSE_DSN": database.dsn}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines()[-1] == f"{[0] * len(helps + calls)} []"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["statz"], "pgrouse: there is no command 'statz'; did you mean 'stats'?: see `pgrouse --help`"),
        (["xyz"], "pgrouse: there is no command 'xyz': see `pgrouse --help`"),
        (["message", "lst"], "pgrouse: no such command 'lst'"),
        (["stats", "--wach"], "pgrouse: no such option '--wach'"),
        (["publish"], "pgrouse: missing argument 'TOPIC': see `pgrouse publish --help`"),
        (["message", "show", "x"], "pgrouse: invalid value for 'ID': expected the id of a message, found 'x'"),
        (["message", "show", "0x10"], "pgrouse: invalid value for 'ID'"),
        (["message", "cancel"], "pgrouse: missing argument 'ID...'"),
        (["message", "list", "--limit", "0"], "pgrouse: invalid value for '--limit': 0 is not in the range"),
        (["message", "list", "--state", "lost"], "pgrouse: invalid value for '--state': 'lost' is not one of 'ready'"),
        (["dead", "list", "--since", "yesterday"], "pgrouse: invalid value for '--since': expected a duration like"),
        (["redrive"], "pgrouse: give either IDs, or filters, or --all: see `pgrouse redrive --help`"),
        (["redrive", "1", "--topic", "t"], "pgrouse: give either IDs"),
        (["redrive", "1", "--all"], "pgrouse: give either IDs"),
        (["publish", "t", "1", "--lines", "-"], "pgrouse: a payload, --body-file and --lines exclude each other"),
        (["publish", "t", "--header", "x"], "pgrouse: invalid value for '--header': expected a header like"),
        (
            ["publish", "t", "--available-at", "2030-01-01"],
            "pgrouse: invalid value for '--available-at': expected a time",
        ),
        (["publish", "t", "--priority", "10"], "pgrouse: invalid value for '--priority'"),
        (["publish", "t", "--body-file", "no.bin"], "pgrouse: invalid value for '--body-file': 'no.bin': No such file"),
        (["completion", "csh"], "pgrouse: invalid value for '{bash|zsh|fish}': 'csh' is not one of"),
        (["--config", "/", "stats"], "pgrouse: invalid value for '-c' / '--config': File '/' is a directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_line_and_exit_code_2(shell: Shell, arguments: list[str], said: str) -> None:
    ended = shell(*arguments)

    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(said)


# The database


def test_an_unreachable_database_is_exit_code_69_with_the_fix(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGROUSE_DSN", f"{UNREACHABLE} password=swordfish")

    ended = shell("stats")

    assert (ended.code, ended.out, ended.err.count("\n")) == (69, "", 1)
    assert ended.err.startswith(
        "pgrouse: cannot use the database: no server listens there: start it, or see host and port"
    )
    assert "swordfish" not in ended.err


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dbname": "no_such_database"}, "the database does not exist: create it with `createdb`"),
        ({"host": "no-such-host.invalid"}, "the host is not known"),
        ({"service": "no_such_service"}, "the service is not known"),
    ],
)
def test_each_cause_of_an_unreachable_database_has_its_own_fix(
    shell: Shell, database: Database, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], expected: str
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", psycopg.conninfo.make_conninfo(database.dsn, **changes))

    ended = shell("stats")

    assert ended.code == 69
    assert expected in ended.err


def test_an_unknown_user_is_exit_code_69(shell: Shell, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGROUSE_DSN", psycopg.conninfo.make_conninfo(database.dsn, user="no_such_user"))

    ended = shell("stats")

    # A server that requires passwords does not reveal whether a user exists.
    expected = "the password is wrong or missing" if database.connect().info.password else "the role does not exist"
    assert (ended.code, expected in ended.err) == (69, True)


def test_a_server_without_free_connections_is_exit_code_75(
    shell: Shell,
    database: Database,
    user_without_rights: str,
    db: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 0").format(sql.Identifier(database.name)))
    monkeypatch.setenv("PGROUSE_DSN", psycopg.conninfo.make_conninfo(database.dsn, user=user_without_rights))

    ended = shell("stats")

    assert ended.code == 75
    assert "try again" in ended.err


def test_a_connection_that_breaks_while_a_command_runs_is_exit_code_75(
    shell: Shell, queue: Queue, proxy: Proxy, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = Background(database.connect())
    monkeypatch.setenv("PGROUSE_DSN", proxy.dsn)
    with queue.conn.transaction():
        queue.conn.execute("LOCK messages.topic IN ACCESS EXCLUSIVE MODE")
        running = background.start(shell, "topic", "list")
        eventually(lambda: background.watcher.execute(LOCK_IS_AWAITED).fetchone() == (True,))
        proxy.cut()

        ended = running.result(timeout=60)

    assert (ended.code, ended.err.count("\n")) == (75, 1)
    assert "the connection broke, since the server restarted or the network failed: try again" in ended.err


def test_a_server_that_is_starting_is_exit_code_75() -> None:
    error = psycopg.OperationalError("connection failed: FATAL:  the database system is starting up")

    assert explain_error(error) == (
        "cannot use the database: the server is not ready: try again in a moment (connection failed: FATAL: "
        "the database "
        "system is starting up)",
        75,
    )


def test_control_characters_of_an_error_are_written_out() -> None:
    stream = StringIO()

    report(ConfigError("\x1b[31mred"), stream)

    assert stream.getvalue() == "pgrouse: \\x1b[31mred\n"


def test_a_password_in_an_error_is_hidden() -> None:
    stream = StringIO()

    report(ConfigError("not postgresql://me:hunter2@host/database"), stream)

    assert "hunter2" not in stream.getvalue()


def test_an_unexplained_connect_error_is_exit_code_69() -> None:
    error = psycopg.OperationalError("connection failed: something new")

    assert explain_error(error) == ("cannot use the database: connection failed: something new", 69)


def test_a_database_without_the_schema_is_exit_code_78(
    shell: Shell, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", empty_database.dsn)

    for command in (
        ["stats"],
        ["publish", "t"],
        ["message", "list"],
        ["dead", "list"],
        ["dead", "list"],
        ["worker", "list"],
        ["health"],
    ):
        ended = shell(*command)
        assert (ended.code, ended.err.count("\n")) == (78, 1), command
        assert "run `pgrouse migrate`" in ended.err


def test_a_lock_timeout_is_exit_code_75(
    shell: Shell, database: Database, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", f"{database.dsn} options='-c lock_timeout=50ms'")
    with db.transaction():
        db.execute("LOCK TABLE messages.message")

        ended = shell("publish", "t")

    assert (ended.code, ended.err.count("\n")) == (75, 1)
    assert "try again" in ended.err


def test_a_query_timeout_is_exit_code_75(
    shell: Shell, database: Database, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", f"{database.dsn} options='-c statement_timeout=100ms'")
    with db.transaction():
        db.execute("LOCK TABLE messages.message")

        ended = shell("publish", "t")

    assert ended.code == 75
    assert "it took too long; narrow the filter, or try again" in ended.err


def test_a_connection_that_breaks_during_a_command_is_exit_code_75(
    pgrouse: Shell, database: Database, db: psycopg.Connection[Any], eventually: Callable[..., Any]
) -> None:
    background = Background(database.connect())
    watcher = database.connect()

    def end_the_waiting() -> bool:
        ended = watcher.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchall()
        return bool(ended)

    with db.transaction():
        db.execute("LOCK TABLE messages.message")
        ending = background.start(eventually, end_the_waiting)
        ended = pgrouse("publish", "t")
        ending.result()
    background.threads.shutdown()

    assert ended.code == 75
    assert "the server is starting or stopping, try again" in ended.err


def test_a_user_without_any_right_is_told_which_role_does_what(
    pgrouse: Shell, database: Database, user_without_rights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", f"{database.dsn} user={user_without_rights}")

    ended = pgrouse("stats")

    assert ended.code == 1
    assert "GRANT this user messages_worker (for `pgrouse run`), messages_publisher (to publish)" in ended.err


@pytest.mark.parametrize(
    ("role", "command", "needed"),
    [
        ("messages_analyst", ["message", "show", "1"], "add --no-payload"),
        ("messages_analyst", ["message", "cancel", "1"], "this needs messages_operator; GRANT it to this user"),
        ("messages_publisher", ["stats"], "this needs messages_operator"),
        ("messages_worker", ["dead", "list"], "needs messages_operator"),
        ("messages_analyst", ["redrive", "1"], "needs messages_operator"),
    ],
)
def test_a_missing_right_is_reported_with_the_role_that_has_it(
    pgrouse: Shell, acting_as: Callable[[str], None], role: str, command: list[str], needed: str
) -> None:
    acting_as(role)

    ended = pgrouse(*command)

    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "permission denied" in ended.err
    assert needed in ended.err


# As a process


@pytest.mark.long
def test_a_process_prints_and_exits_like_a_call(database: Database) -> None:
    done = subprocess.run(
        [PGROUSE, "publish", "t", "-", "--json"],
        input='{"id": 7}', env={**os.environ, "PGROUSE_DSN": database.dsn}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, '{"id": 1, "topic": "t", "outcome": "inserted"}\n', "")


@pytest.mark.long
def test_a_closed_pipe_prints_no_error(database: Database) -> None:
    with psycopg.connect(database.dsn) as conn:
        conn.execute("INSERT INTO messages.message (topic, payload) SELECT 't', '1' FROM generate_series(1, 5000)")

    done = subprocess.run(
        f"{PGROUSE} message list --limit 5000 --json | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", env={**os.environ, "PGROUSE_DSN": database.dsn}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines()[1] == "141"
    assert done.stderr == ""


@pytest.mark.long
def test_ctrl_c_is_exit_code_130_and_one_line(database: Database) -> None:
    process = subprocess.Popen(
        [PGROUSE, "stats", "--watch", "--interval", "1m"],
        env={**os.environ, "PGROUSE_DSN": database.dsn}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A shell that runs the tests in the background makes them, and their children, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )  # fmt: skip
    assert process.stdout is not None
    # It has logged everything of this minute: now it sleeps, or is about to.
    first = process.stdout.readline()

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (130, "pgrouse: interrupted\n")
    assert (first + out).strip() == "TOPIC  READY  RUNNING  DELAYED  DEAD 24H  OLDEST  HANDLED"


def test_every_command_takes_json_and_a_configuration() -> None:
    def leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            return [(name, command)]
        ctx = click.Context(command)
        found = [(each, command.get_command(ctx, each)) for each in command.list_commands(ctx)]
        return [leaf for each, inner in found if inner for leaf in leaves(inner, f"{name} {each}")]

    for name, command in leaves(root, "pgrouse"):
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options, name
        assert "--config" in options or name == "pgrouse demo", name
