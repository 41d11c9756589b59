"""What code declares: how modules are found and read, and what the file changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from pgrouse.config import config
from pgrouse.config.source import ConfigProblems
from pgrouse.handlers.declaration import loader
from pgrouse.handlers.declaration.discovery import with_declared

Read = Callable[..., config.Config]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """`write("shop.jobs", text)` writes a module in the working directory; it is forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    # The shop of the examples, which another test may have imported.
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        monkeypatch.delitem(sys.modules, name)
    known = set(sys.modules)

    def write(name: str, text: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.fixture
def read(tmp_path: Path, write: object) -> Read:
    """`read('[handlers]…')` reads a pgrouse.toml with this text, and what its modules declare."""

    def read(text: str = "", **overrides: object) -> config.Config:
        (tmp_path / "pgrouse.toml").write_text(text)
        return with_declared(config.load(environ={}, overrides={"handlers": overrides}))

    return read


def problems(read: Read, text: str = "", **overrides: object) -> list[str]:
    with pytest.raises(ConfigProblems) as refused:
        read(text, **overrides)
    return [str(each) for each in refused.value.problems]


JOBS = """
    from pgrouse import topic

    @topic("orders.created", max_attempts=5, backoff="exponential", timeout="30s", concurrency=2)
    async def created(order: dict, ctx): ...

    @topic("mail.send")
    def send(payload): ...
    """


def test_the_topics_of_a_module_are_handled_with_the_policies_of_their_decorators(
    write: Callable[[str, str], None], read: Read
) -> None:
    write("shop.jobs", JOBS)

    settings = read('[handlers]\nmodules = ["shop.jobs"]')

    created = settings.topics["orders.created"]
    assert (created.max_attempts, created.timeout, created.concurrency) == (5, timedelta(seconds=30), 2)
    assert created.backoff.kind == "exponential"
    handlers = loader.load(settings)
    assert {topic: each.name for topic, each in handlers.items()} == {
        "orders.created": "shop.jobs:created",
        "mail.send": "shop.jobs:send",
    }
    assert handlers["orders.created"].mode.value == "async"
    assert handlers["orders.created"].function is sys.modules["shop.jobs"].created.function


def test_a_flag_names_the_modules_without_any_file(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", JOBS)

    assert list(read(modules=["shop.jobs"]).topics_with_handler) == ["orders.created", "mail.send"]


def test_the_file_wins_over_the_code_key_by_key(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", JOBS)

    settings = read(
        '[handlers]\nmodules = ["shop.jobs"]\n[topics."orders.created"]\ntimeout = "5s"\nconcurrency = 9\n'
        'backoff = { base = "2s" }'
    )

    created = settings.topics["orders.created"]
    assert (created.max_attempts, created.timeout, created.concurrency) == (5, timedelta(seconds=5), 9)
    # A setting is one value, though it has parts.
    assert created.backoff.model_dump(mode="json") == {"base": "2s"}


def test_every_value_knows_its_line(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", JOBS)

    settings = read('[handlers]\nmodules = ["shop.jobs"]\n[topics."orders.created"]\ntimeout = "5s"')

    origins = {
        key: str(settings.origin("topics", "orders.created", *key.split(".")))
        for key in ("timeout", "max_attempts", "backoff.kind", "handler", "batch_size")
    }
    assert origins == {
        "timeout": "pgrouse.toml:4",
        "max_attempts": "shop/jobs.py:4",
        "backoff.kind": "shop/jobs.py:4",
        "handler": "shop/jobs.py:4",
        "batch_size": "default",
    }


def test_a_wrong_value_in_code_is_reported_with_its_line(write: Callable[[str, str], None], read: Read) -> None:
    write(
        "shop.jobs",
        """
        from pgrouse import topic

        @topic("a", max_attempts=-1, max_atempts=3)
        def work(payload): ...
        """,
    )

    assert problems(read, modules=["shop.jobs"]) == [
        "shop/jobs.py:4: unknown key 'max_atempts' in [topics.a]; did you mean 'max_attempts'?",
        "shop/jobs.py:4: topics.a.max_attempts: must be at least 0, found -1",
    ]


def test_a_topic_that_two_modules_declare_is_refused_with_both_places(
    write: Callable[[str, str], None], read: Read
) -> None:
    write("one", '\nfrom pgrouse import topic\n\n@topic("a")\ndef work(payload): ...\n')
    write("two", '\nfrom pgrouse import topic\n\n\n@topic("a")\ndef work(payload): ...\n')

    assert problems(read, modules=["one", "two"]) == [
        "two.py:5: topic a is declared at one.py:4 already: a topic has one handler"
    ]


def test_a_topic_that_a_module_only_imports_is_not_its_own(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", JOBS)
    write("web", 'from shop.jobs import send\nfrom pgrouse import topic\n\n@topic("web")\ndef work(payload): ...\n')

    assert list(read(modules=["web"]).topics) == ["web"]
    assert sorted(read(modules=["web", "shop.jobs"]).topics) == ["mail.send", "orders.created", "web"]


def test_a_package_has_the_topics_of_its_modules_that_it_imports(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", JOBS)
    write("shop.__init__", "from shop.jobs import created")

    assert {name: each.handler for name, each in read(modules=["shop"]).topics.items()} == {
        "orders.created": "shop:created"
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import os", "shop.jobs declares no topic: put @topic above its handlers, or remove it"),
        ("\n\n{}['x']", "module shop.jobs cannot be imported: KeyError: 'x' (at shop/jobs.py:3)"),
        (
            "import nowhere",
            "module shop.jobs cannot be imported: ModuleNotFoundError: No module named 'nowhere' (at shop/jobs.py:1)",
        ),
        ("import sys\nsys.exit(3)", "module shop.jobs cannot be imported: SystemExit: 3 (at shop/jobs.py:2)"),
        (
            "from pgrouse import topic\n\n@topic('a')\ndef a(payload): ...\n\n@topic\ndef b(payload): ...",
            "module shop.jobs cannot be imported: TypeError: @topic above b has no name of a topic: "
            'write @topic("orders.created") (at shop/jobs.py:6)',
        ),
        ("def", "module shop.jobs cannot be imported: SyntaxError: invalid syntax (jobs.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_used_is_named_with_its_line(
    write: Callable[[str, str], None], read: Read, text: str, problem: str
) -> None:
    write("shop.jobs", text)

    assert problems(read, '[handlers]\nmodules = ["shop.jobs"]') == [f"pgrouse.toml:2: handlers.modules: {problem}"]


def test_a_module_that_does_not_exist_is_named(read: Read) -> None:
    (problem,) = problems(read, modules=["nowhere"])

    assert problem == (
        "--module: handlers.modules: module nowhere cannot be imported: ModuleNotFoundError: No module named 'nowhere'"
    )


def test_a_file_may_add_to_a_topic_of_code_but_not_to_one_that_nothing_handles(
    write: Callable[[str, str], None], read: Read
) -> None:
    write("shop.jobs", JOBS)
    text = '[handlers]\nmodules = ["shop.jobs"]\n[topics."{}"]\nconcurrency = 7'

    assert read(text.format("mail.send")).topics["mail.send"].concurrency == 7
    (problem,) = problems(read, text.format("mail.sent"))
    assert 'topics."mail.sent": handler is missing' in problem


def test_a_decorated_function_needs_its_module_named(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", JOBS)
    settings = read('[topics.a]\nhandler = "shop.jobs:send"')

    with pytest.raises(ConfigProblems, match=r"name shop.jobs in handlers.modules"):
        loader.load(settings)


def test_modules_that_are_named_are_permitted_and_others_stay_forbidden() -> None:
    rules = config.HandlersSettings(modules=["json"], import_path=[])

    assert rules.permits("json")
    assert rules.permits("json.tool")
    assert not rules.permits("jsonschema")


def test_a_module_that_only_publishes_imports_no_handlers_and_no_configuration() -> None:
    import subprocess  # noqa: PLC0415 - only here

    code = (
        "import pgrouse; pgrouse.topic('a')(print); import sys; print([m for m in sys.modules if "
        "m.startswith('pgrouse.config.config')])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Schedules

SCHEDULED = """
    from pydantic import BaseModel
    from pgrouse import topic

    class Report(BaseModel):
        pages: int

    @topic("report")
    def report(report: Report): ...

    report.every("0 7 * * *", Report(pages=3), time_zone="Europe/Berlin", jitter="5m", while_paused="skip", timeout=9)
    """


def test_a_schedule_of_code_is_named_after_its_topic_and_the_file_wins(
    write: Callable[[str, str], None], read: Read
) -> None:
    write("shop.jobs", SCHEDULED)

    settings = read('[handlers]\nmodules = ["shop.jobs"]\n[schedules.report]\ncron = "@daily"')

    found = settings.schedules["report"]
    assert (found.cron, found.topic, found.time_zone, found.payload) == (
        "@daily",
        "report",
        "Europe/Berlin",
        {"pages": 3},
    )
    assert (found.while_paused, found.timeout) == ("skip", timedelta(seconds=9))
    assert str(settings.origin("schedules", "report", "cron")) == "pgrouse.toml:4"
    assert str(settings.origin("schedules", "report", "time_zone")) == "shop/jobs.py:11"
    assert settings.declared_by("report") == "module shop.jobs"


def test_two_schedules_with_one_name_are_refused(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", SCHEDULED.rstrip() + "\n    report.every('@daily')\n    report.every('@daily', name='other')\n")

    assert problems(read, modules=["shop.jobs"]) == [
        "shop/jobs.py:12: schedule report is declared at shop/jobs.py:11 already: "
        'give one of them a name="..." of its own'
    ]


def test_a_payload_without_json_is_refused_with_its_line(write: Callable[[str, str], None], read: Read) -> None:
    write("shop.jobs", SCHEDULED.rstrip() + "\n    report.every('@daily', object(), name='other')\n")

    (problem,) = problems(read, modules=["shop.jobs"])

    assert problem.startswith("shop/jobs.py:12: schedule other: ")


def test_a_schedule_of_the_file_needs_a_time_and_a_topic(read: Read) -> None:
    assert problems(read, '[schedules.nightly]\ncron = "@daily"') == [
        "pgrouse.toml:1: schedules.nightly: topic is missing"
    ]
    assert problems(read, '[schedules.nightly]\ntopic = "a"') == ["pgrouse.toml:1: schedules.nightly: cron is missing"]
