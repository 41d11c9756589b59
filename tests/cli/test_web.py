"""`pgrouse web`: it serves, it stops in order, and it opens no door that nobody guards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.shell import Shell
from tests.daemon.process import PGROUSE
from tests.server.deadline import eventually
from tests.server.postgres import Database


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.com:80"])
def test_an_address_that_others_reach_is_refused_while_there_is_no_token(pgrouse: Shell, listen: str) -> None:
    ended = pgrouse("web", "--listen", listen)

    assert ended.code == 78
    assert "there is no token" in ended.err
    assert "pgrouse token add" in ended.err


def test_a_revoked_token_guards_nothing(pgrouse: Shell) -> None:
    pgrouse("token", "add", "a", "--role", "viewer")
    pgrouse("token", "revoke", "a")

    assert "there is no token" in pgrouse("web", "--listen", "0.0.0.0:0").err


def test_a_port_that_is_taken_is_told_with_the_fix(pgrouse: Shell) -> None:
    from pgrouse.web import listen_socket  # noqa: PLC0415

    taken = listen_socket.bind("127.0.0.1:0")
    try:
        ended = pgrouse("web", "--listen", listen_socket.url(taken).removeprefix("http://"))
    finally:
        taken.close()

    assert ended.code == 78
    assert "choose another port by --listen" in ended.err


def test_without_its_packages_it_says_what_to_install(pgrouse: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pgrouse.web.server", raising=False)
    monkeypatch.delattr("pgrouse.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    # Refused for another reason, should it start all the same.
    ended = pgrouse("web", "--listen", "0.0.0.0:0")

    assert ended.code == 78
    assert "uvicorn is not installed: pip install 'pgrouse[web]'" in ended.err


def test_it_serves_until_it_is_told_to_stop(database: Database, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [PGROUSE, "web", "--listen", "127.0.0.1:0"],
            env={"PGROUSE_DSN": database.dsn},
            cwd=tmp_path,
            stderr=out,
            start_new_session=True,
        )
    try:

        def url() -> str | None:
            whole, _, _ = log.read_text().rpartition("\n")
            entries = [json.loads(line) for line in whole.splitlines()]
            return next((entry["url"] for entry in entries if entry["event"] == "web.started"), None)

        found = eventually(url)
        eventually(lambda: httpx.get(f"{found}/readyz", timeout=30).status_code == 200)
        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 0
        assert "web.stopped" in log.read_text()
    finally:
        process.kill()
        process.wait()
