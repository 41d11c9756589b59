"""docs/reference/http.md shows the real answers, and has every route."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.api.site import Site
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/reference/http.md")
# The machine of the tests may have no curl.
CURL = """#!{python}
import argparse, sys, httpx
given = argparse.ArgumentParser()
given.add_argument("-s", action="store_true"); given.add_argument("-H", action="append"); given.add_argument("-d")
given.add_argument("-X"); given.add_argument("url")
options = given.parse_args()
headers = dict(each.split(": ", 1) for each in options.H)
if options.d is not None:
    headers = {{"Content-Type": "application/x-www-form-urlencoded", **headers}}
method = options.X or ("GET" if options.d is None else "POST")
sys.stdout.write(httpx.request(method, options.url, headers=headers, content=options.d, timeout=60).text)
"""


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    site = Site(database)
    yield site
    site.stop()


@pytest.mark.long
def test_every_example_returns_the_answer_on_the_page(site: Site, tmp_path: Path) -> None:
    token = site.token("viewer", "publisher", "worker", "operator")
    (tmp_path / "curl").write_text(CURL.format(python=sys.executable))
    (tmp_path / "curl").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "URL": f"{site.url}/v1", "AUTH": f"Authorization: Bearer {token}"}
    claim = "CLAIM"
    answers, shown = [], []
    for block in PAGE.blocks:
        if block.kind != "console runnable":
            continue
        for command, answer in re.findall(r"^\$ (.+)\n(.*)$", block.text, re.MULTILINE):
            done = subprocess.run(
                ["bash", "-c", command.replace("CLAIM", claim)], env=env, text=True, capture_output=True, check=True
            )
            if found := re.search(r'"claim_id":(\d+)', done.stdout):
                claim = found[1]
            answers.append(done.stdout.strip().replace(claim, "CLAIM"))
            shown.append(answer)

    assert len(shown) > 8
    assert answers == shown


def test_the_worker_on_the_page_works_and_stops_on_request(
    site: Site, database: Database, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    (block,) = [block for block in PAGE.blocks if block.kind == "bash worker"]
    token = site.token("publisher", "worker", "operator", name="shop")
    (tmp_path / "curl").write_text(CURL.format(python=sys.executable))
    (tmp_path / "work").write_text("#!/bin/sh\ngrep -q '\"payload\":1'\n")
    for each in ("curl", "work"):
        (tmp_path / each).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "URL": f"{site.url}/v1", "AUTH": f"Authorization: Bearer {token}"}
    with site.client(token) as http, database.connect() as conn:
        for payload in (1, 2):
            http.post("/v1/messages", json={"topic": "orders.webhook", "payload": payload})
        worker = subprocess.Popen(["bash", "-c", block.text], env=env, cwd=tmp_path, stdout=subprocess.PIPE)
        try:
            ended = "SELECT result FROM messages.message_archive ORDER BY id"
            eventually(lambda: [each for (each,) in conn.execute(ended)] == ["success", "failed"])
            http.post("/v1/workers/drain", json={"name": "http:shop/shell-1"})
            # Its claim is under way: a message that it waits for lets it claim again.
            eventually(
                lambda: http.post("/v1/messages", json={"topic": "orders.webhook", "payload": 1}) and worker.poll() == 0
            )
        finally:
            worker.kill()
            worker.communicate()
