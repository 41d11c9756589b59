"""The API against its own description: no request makes it fail, and it answers as described."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from pgrouse.config.policy.policy_settings import TopicPolicy
from pgrouse.web import v1
from tests.api.site import Site
from tests.server.postgres import Database
from tests.sql.queue import Queue

# Names that mean nothing to a client that sees them without their module.
MEANINGLESS = {
    *("Acted", "Body", "Changed", "Channel", "Claim", "Dead", "Done", "Drained", "Edit", "Ended", "Entry"),
    *("Examined", "Explained", "Filter", "Finding", "Found", "Given", "Group", "Groups", "Held", "Ids", "Kept"),
    *("New", "Page", "Pause", "Paused", "Purge", "Purged", "Ran", "Reason", "Removed", "Resumed", "Settled"),
    *("Shape", "Shown", "Skip", "Skipped", "Standing", "Task", "Which", "Why"),
}


@pytest.mark.parametrize("examples", [2, pytest.param(10, marks=pytest.mark.long)])
def test_generated_requests_cause_no_error_and_get_only_described_answers(
    site: Site, all_roles: str, queue: Queue, examples: int
) -> None:
    for topic in ("orders.created", "a"):
        queue.publish(topic)
        queue.publish(topic, channel="c")
    schema = schemathesis.openapi.from_url(f"{site.url}/v1/openapi.json", timeout=60)
    wrong: dict[str, str] = {}
    operations = [each.ok() for each in schema.get_all_operations()]

    for operation in operations:

        @given(case=operation.as_strategy() | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: schemathesis.Case) -> None:
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {all_roles}"}
            if isinstance(case.body, dict) and "wait" in case.body:
                case.body["wait"] = 0
            case.call_and_validate(checks=[not_a_server_error, status_code_conformance, response_schema_conformance])

        try:
            ask()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all are reported together
            wrong[operation.label] = str(error)[:1500]

    assert len(operations) > 40
    assert wrong == {}


@pytest.fixture
def description(site: Site) -> dict[str, Any]:
    """The description of the API."""
    found: dict[str, Any] = httpx.get(f"{site.url}/v1/openapi.json").json()
    return found


@given(junk=st.binary(max_size=200))
@settings(max_examples=20, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_invalid_json_is_refused(http: httpx.Client, junk: bytes) -> None:
    for path in ("/v1/messages", "/v1/claim", "/v1/dead/redrive", "/v1/topics/a"):
        method = "PATCH" if path.endswith("/a") else "POST"
        answer = http.request(method, path, content=b"\xff" + junk, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422)


def test_a_change_of_policy_is_described_setting_by_setting(description: dict[str, Any]) -> None:
    settings = description["components"]["schemas"]["TopicPolicy"]["properties"]

    assert list(settings) == TopicPolicy.names()
    body = description["paths"]["/v1/topics/{topic}"]["patch"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/TopicPolicy"}


def test_names_are_unique_and_mean_something(description: dict[str, Any]) -> None:
    names = description["components"]["schemas"]
    ids = [operation["operationId"] for operation in operations_of(description)]
    trees = [ast.parse(file.read_text()) for file in Path(v1.__file__).parent.glob("*.py")]
    classes = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))

    assert [name for name in names if "__" in name or "-" in name or name in MEANINGLESS] == []
    assert [each for each in ids if not re.fullmatch("[a-z]+(_[a-z]+)+", each)] == []
    assert sorted(ids) == sorted(set(ids))
    assert [name for name, count in classes.items() if count > 1] == []
    assert len(classes) > 60


def operations_of(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in description["paths"].values() for operation in path.values()]


def test_each_member_and_parameter_is_described(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    members = [
        f"{name}.{member}"
        for name, schema in schemas.items()
        for member, about in schema.get("properties", {}).items()
        if not about.get("description")
    ]
    parameters = [
        f"{operation['operationId']}.{parameter['name']}"
        for operation in operations_of(description)
        for parameter in operation.get("parameters", [])
        if not parameter.get("description")
    ]

    assert (members, parameters) == ([], [])


def test_each_body_has_an_example_that_fits_its_schema(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    fitting = 0
    for operation in operations_of(description):
        bodies = [operation.get("requestBody"), *(operation["responses"].get(status) for status in ("200", "201"))]
        for content in [body["content"]["application/json"] for body in bodies if body]:
            schema = content["schema"]
            name = schema.get("$ref", "").rpartition("/")[2]
            example = content["example"] if "example" in content else schemas[name]["examples"][0]
            jsonschema.validate(example, {**schema, "components": {"schemas": schemas}})
            fitting += 1

    assert fitting > 60


def test_each_tag_is_described(description: dict[str, Any]) -> None:
    used = {tag for operation in operations_of(description) for tag in operation["tags"]}

    assert {tag["name"] for tag in description["tags"] if tag["description"]} == used


@pytest.mark.long
def test_the_server_is_where_it_was_read_from_or_the_address_that_is_set(
    site: Site, site_database: Database, description: dict[str, Any]
) -> None:
    public = Site(site_database, url="https://queue.example.com")
    set_ = httpx.get(f"{public.url}/v1/openapi.json").json()
    public.stop()

    assert description["servers"] == [{"url": "/"}]
    assert set_["servers"] == [{"url": "https://queue.example.com"}]


def test_the_page_of_the_api_shows_every_route_to_anonymous_clients(site: Site) -> None:
    paths = httpx.get(f"{site.url}/v1/openapi.json").json()["paths"]

    page = httpx.get(f"{site.url}/v1/docs")

    assert page.status_code == 200
    assert [path for path in paths if path not in page.text] == []
