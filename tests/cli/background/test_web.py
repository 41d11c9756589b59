"""`pgrouse web`: it serves, it stops on a signal, and it refuses a public address without a token."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.cli.shell import Shell
from tests.daemon.process import PGROUSE, now
from tests.daemon.proxy import Proxy
from tests.server.deadline import eventually
from tests.server.postgres import Database


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.com:80"])
def test_a_public_address_is_refused_without_a_token(pgrouse: Shell, listen: str) -> None:
    ended = pgrouse("web", "--listen", listen)

    assert ended.code == 78
    assert "there is no token" in ended.err
    assert "pgrouse token add" in ended.err


def test_a_revoked_or_expired_token_does_not_permit_a_public_address(pgrouse: Shell, database: Database) -> None:
    for name in ("a", "b"):
        pgrouse("token", "add", name, "--role", "viewer")
    pgrouse("token", "revoke", "a")
    database.connect().execute("UPDATE messages.token SET expires_at = clock_timestamp() WHERE name = 'b'")

    assert "there is no token" in pgrouse("web", "--listen", "0.0.0.0:0").err


def test_a_public_address_needs_no_token_if_users_log_in_by_a_provider(
    pgrouse: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next thing that is refused is the package that the login needs."""
    monkeypatch.setitem(sys.modules, "authlib.integrations.starlette_client", None)
    table = 'issuer = "https://a.example.com"\nclient_id = "a"\nclient_secret = "b"\n'
    access = '[[web.oidc.access]]\ngroup = "a"\nroles = ["viewer"]\n'
    (tmp_path / "pgrouse.toml").write_text(f'[web]\nurl = "https://q.example.com"\n[web.oidc]\n{table}{access}')

    ended = pgrouse("--config", str(tmp_path / "pgrouse.toml"), "web", "--listen", "0.0.0.0:0")

    assert "pip install 'pgrouse[oidc]'" in ended.err


def test_a_port_in_use_is_reported_with_the_fix(pgrouse: Shell) -> None:
    from pgrouse.web.access import listen_socket  # noqa: PLC0415

    taken = listen_socket.bind("127.0.0.1:0")
    try:
        ended = pgrouse("web", "--listen", listen_socket.url(taken).removeprefix("http://"))
    finally:
        taken.close()

    assert ended.code == 78
    assert "choose another port by --listen" in ended.err


def test_a_missing_package_is_reported_with_what_to_install(pgrouse: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pgrouse.web.server", raising=False)
    monkeypatch.delattr("pgrouse.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    # Refused for another reason, if it started nevertheless.
    ended = pgrouse("web", "--listen", "0.0.0.0:0")

    assert ended.code == 78
    assert "uvicorn is not installed: pip install 'pgrouse[web]'" in ended.err


@pytest.mark.long
def test_the_server_serves_until_it_is_stopped(database: Database, tmp_path: Path) -> None:
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
        found = eventually(lambda: started_url(log))
        eventually(lambda: httpx.get(f"{found}/readyz", timeout=30).status_code == 200)
        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 0
        assert "web.stopped" in log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_a_server_whose_database_does_not_answer_any_more_stops_within_its_time(
    database: Database, tmp_path: Path
) -> None:
    proxy = Proxy(database.dsn)
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [PGROUSE, "web", "--listen", "127.0.0.1:0"], env={"PGROUSE_DSN": proxy.dsn}, cwd=tmp_path, stderr=out
        )
    try:
        url = eventually(lambda: started_url(log))
        eventually(lambda: httpx.get(f"{url}/readyz", timeout=30).status_code == 200)
        proxy.stall()
        with ThreadPoolExecutor(3) as clients:
            clients.map(get, [f"{url}/v1/{each}" for each in ("topics", "workers", "stats")])
            assert proxy.holds_back.wait(30)
            began = now()
            process.send_signal(signal.SIGTERM)

            assert process.wait(60) == 0
            # The requests themselves are given up after 60 s.
            assert now() - began < 40, "10 s for requests and 5 s for the rest, on a fast machine"
    finally:
        process.kill()
        process.wait()
        proxy.close()


def started_url(log: Path) -> str | None:
    """Return where the server listens, when it has logged that."""
    whole, _, _ = log.read_text().rpartition("\n")
    entries = [json.loads(line) for line in whole.splitlines()]
    return next((entry["url"] for entry in entries if entry["event"] == "web.started"), None)


def get(url: str) -> None:
    with suppress(httpx.HTTPError):
        httpx.get(url, timeout=60)
