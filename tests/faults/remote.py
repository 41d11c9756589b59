"""A web server in its own process, and workers that reach the queue only through it."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.daemon import preloaded
from tests.daemon.preloaded import Forked
from tests.daemon.receiver import reserved
from tests.demo.process import PGROUSE
from tests.faults.ledger import Ledger
from tests.faults.topics import REMOTE
from tests.faults.traffic import Actor
from tests.server.deadline import eventually

# Locks last 1.5 s.
TOO_LATE_S = 2.5
SETTINGS = {"PGROUSE_WORKER__MAINTENANCE_INTERVAL": "0.3s", "PGROUSE_WORKER__POLL_INTERVAL": "1s"}
# What the web server has imported when it begins.
IMPORTS = (*preloaded.IMPORTS, "pgrouse.cli.background.web", "pgrouse.web.server")


class WebServer:
    """`pgrouse web` on a port of this machine; without a token its callers are operators."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder, self._dsn = folder, dsn
        self._kept = reserved()
        self._listen = f"127.0.0.1:{self._kept.getsockname()[1]}"
        self._process: Forked | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self._listen}"

    def start(self) -> None:
        """Start it; it answers a little later."""
        self._process = Forked(
            PGROUSE,
            *("web", "--listen", self._listen),
            cwd=self._folder,
            env={**os.environ, "PGROUSE_DSN": self._dsn, **SETTINGS},
            log=self._folder / "web.log",
            imports=IMPORTS,
        )

    def wait(self) -> None:
        """Return when it answers."""
        eventually(self._answers, within_s=100)

    def kill(self) -> None:
        """Kill it with -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)

    def close(self) -> None:
        """Kill it and release its port."""
        self.kill()
        self._kept.close()

    def _answers(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/livez", timeout=10).status_code == httpx.codes.OK
        return False


class RemoteWorker(Actor):
    """Claims and settles over HTTP. It records what it does as handlers do."""

    def __init__(self, name: str, server: WebServer, journal: Path, ledger: Ledger, seed: str) -> None:
        super().__init__(name, "", ledger, seed)
        self._server, self._journal = server, journal

    def _connected(self) -> None:
        with suppress(httpx.HTTPError), httpx.Client(base_url=f"{self._server.url}/v1", timeout=10) as client:
            while not self.stopping.is_set():
                self._turn(client)

    def _turn(self, client: httpx.Client) -> None:
        asked = {"topics": [REMOTE], "worker": self.name, "limit": self.chance.randint(1, 4), "wait": 1}
        answer = client.post("/claim", json=asked)
        assert answer.status_code in {httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE}, answer.text
        if answer.status_code != httpx.codes.OK:
            self.stopping.wait(0.3)
            return
        for message in answer.json()["messages"]:
            self._note("start", message)
        for message in answer.json()["messages"]:
            self._work(client, message)

    def _work(self, client: httpx.Client, message: dict[str, Any]) -> None:
        match message["payload"]["do"]:
            case "forget" if message["attempt"] == 1:
                return
            case "late" if message["attempt"] == 1:
                time.sleep(TOO_LATE_S)
                self._settle(client, message, "success", outcome="complete")
            case "raise" if message["attempt"] == 1:
                self._settle(client, message, "failed", outcome="retry", error="not yet", delay=0.1)
            case _:
                self._settle(client, message, "success", outcome="complete")

    def _settle(self, client: httpx.Client, message: dict[str, Any], how: str, **ended: Any) -> None:
        self._note("reported", message, how=how)
        answer = client.post(f"/messages/{message['id']}/settle", json={"claim_id": message["claim_id"], **ended})
        known = {httpx.codes.OK, httpx.codes.CONFLICT, httpx.codes.SERVICE_UNAVAILABLE}
        assert answer.status_code in known, answer.text

    def _note(self, what: str, message: dict[str, Any], **more: Any) -> None:
        entry = {"what": what, "id": message["id"], "claim": message["claim_id"], "topic": REMOTE, "at": time.time()}
        with self._journal.open("a") as journal:
            journal.write(json.dumps({**entry, "attempt": message["attempt"], "pid": os.getpid(), **more}) + "\n")
