"""Projects of Django, with their own tests: that of `suite`, and the shop of the examples.

Python 3.11 has no Django 6, which has tasks of its own: the tests of `suite` run in a container with Python 3.13, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from secrets import token_hex

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.daemon.receiver import reserved
from tests.server.deadline import eventually
from tests.server.postgres import Database

CHECKOUT = Path(__file__).parents[2]
SUITE, SHOP = Path(__file__).parent / "suite", CHECKOUT / "examples" / "django_shop"


def environ_for(database: Database) -> dict[str, str]:
    """Return the environment of a project that uses a database."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PGROUSE_"))}
    return kept | {"DATABASE_URL": database.dsn}


def run(folder: Path, database: Database, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a project, on a database that Django makes next to the given one."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environ_for(database),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_the_project(database: Database) -> None:
    ended = run(SUITE, database, "-m", "pytest", "-q", "--tb=short")

    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr


# A version of Django with what uv.lock has for this Python, and nothing of what only other tests need.
ON_A_NEWER_PYTHON = r"""
set -e
pip install -q --root-user-action=ignore --group uv
uv export -q --locked --no-hashes --no-emit-project --all-extras --group test -p python -o /tmp/locked
sed -i '/^django==/d' /tmp/locked
uv pip install -q --system -c /tmp/locked -e '.[django,web]' "django==$DJANGO.*" \
  pytest pytest-django pytest-timeout httpx
python -c 'import django.tasks'
cd tests/django/suite
exec python -m pytest -q --tb=short
"""


@pytest.mark.container
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["6.0", "6.1"])
def test_of_the_project_on_django_with_tasks_of_its_own(database: Database, version: str) -> None:
    socket, name = conninfo_to_dict(database.dsn)["host"], f"pgrouse-test-{token_hex(4)}"
    mounts = [f"--volume={CHECKOUT}:/checkout:ro", *([f"--volume={socket}:{socket}"] if socket[0] == "/" else [])]
    environ = {"DATABASE_URL": database.dsn, "DJANGO": version, "PYTHONDONTWRITEBYTECODE": "1"}
    given = [f"--env={key}={value}" for key, value in environ.items()]
    started = ["docker", "run", "--rm", "--init", "--network=host", "--workdir=/checkout", f"--name={name}"]
    try:
        ended = subprocess.run(
            [*started, *mounts, *given, "python:3.13-slim-trixie", "sh", "-c", ON_A_NEWER_PYTHON],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)

    assert ended.returncode == 0, ended.stdout[-10_000:] + ended.stderr


@pytest.mark.parametrize("arguments", [("manage.py", "test"), ("-m", "pytest", "-q")])
def test_of_the_shop(database: Database, arguments: tuple[str, ...]) -> None:
    ended = run(SHOP, database, *arguments)

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.long
def test_the_shop_has_no_migration_left_to_make(database: Database) -> None:
    ended = run(SHOP, database, "manage.py", "makemigrations", "--check", "--dry-run")

    assert (ended.returncode, ended.stdout) == (0, "No changes detected\n"), ended.stderr


@pytest.fixture
def address() -> Iterator[str]:
    """An address for the shop, which no other process gets."""
    with reserved() as kept:
        yield f"127.0.0.1:{kept.getsockname()[1]}"


def dashboard_is_for_staff(http: httpx.Client) -> None:
    """The page of the task's topic is there for anyone who has logged in by the admin."""
    page, html = "/queue/topics/shop.tasks.send_receipt", {"accept": "text/html"}
    assert http.get(page, headers=html).url.path == "/queue/login"
    http.get("/admin/login/")
    user = {"username": "admin", "password": "admin", "csrfmiddlewaretoken": http.cookies["csrftoken"]}
    assert http.post("/admin/login/?next=/admin/", data=user).url.path == "/admin/"
    assert http.get("/static/admin/css/base.css").status_code == 200
    shown = http.get(page, headers=html)
    assert (shown.status_code, "shop.tasks.send_receipt" in shown.text) == (200, True)


def test_one_command_starts_the_shop_and_an_order_gets_its_receipt(
    database: Database, address: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        shop = subprocess.Popen(
            [sys.executable, "manage.py", "start", address],
            cwd=SHOP,
            env=environ_for(database),
            stdout=output,
            stderr=output,
            start_new_session=True,
            # A shell that runs the tests in the background makes them, and their children, ignore Ctrl-C.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def front() -> httpx.Response | None:
        assert shop.poll() is None, log.read_text()
        try:
            return http.get("/")
        except httpx.ConnectError:
            return None

    try:
        with httpx.Client(base_url=f"http://{address}", follow_redirects=True) as http:
            eventually(front, within_s=120)
            order = {"customer": "anna@example.com", "cents": "5", "csrfmiddlewaretoken": http.cookies["csrftoken"]}
            assert "anna@example.com" in http.post("/order", data=order).text
            eventually(lambda: "SUCCESSFUL" in http.get("/receipt/1").text, within_s=60)
            dashboard_is_for_staff(http)
        os.killpg(shop.pid, signal.SIGINT)
        assert shop.wait(60) == 0, log.read_text()
    finally:
        if shop.poll() is None:
            os.killpg(shop.pid, signal.SIGKILL)
