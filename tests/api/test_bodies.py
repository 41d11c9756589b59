"""What a body may be: the description accepts exactly what the server does, and errors are in our own words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from pgrouse.errors import InvalidMessage
from pgrouse.publishing.new_message import to_columns
from pgrouse.web.v1.alert import NewSilence
from pgrouse.web.v1.dead import RedriveRequest
from pgrouse.web.v1.messages.message import EditRequest
from pgrouse.web.v1.messages.publish import PublishRequest
from pgrouse.web.v1.model import RequestModel
from pgrouse.web.v1.schedule import ScheduleChangeRequest
from pgrouse.web.v1.topics.topic import PauseRequest
from pgrouse.web.v1.work import ALLOWED_FIELDS, SettleRequest
from tests.api.described import description
from tests.api.site import code

AT = "2027-01-31T08:00:00+01:00"
# The values that a member is tried with; a member may always be left out.
SETTLE = {"output": 1, "error": "e", "delay": 1, "until": AT, "state": 1, "pause": "topic", "reason": "r"}
SETTLE |= {"ran": True, "event": "e", "event_number": 1}
PUBLISH = {"payload": 1, "body": "aGk=", "key": "k", "delay": 1, "available_at": AT, "debounce": 1, "max_delay": 2}
PUBLISH |= {"throttle": 1, "after": [1], "on_conflict": "replace"}
KEYED = {"topic": "t", "payload": 1, "key": "k"}
TRIED: list[tuple[type[BaseModel], dict[str, Any], dict[str, Any]]] = [
    *((SettleRequest, {"claim_id": 1, "outcome": each.value}, SETTLE) for each in ALLOWED_FIELDS),
    (PublishRequest, {"topic": "t"}, PUBLISH),
    *((PublishRequest, KEYED | {"on_conflict": each}, PUBLISH) for each in ("error", "ignore", "append")),
    (RedriveRequest, {}, {"ids": [1], "filter": {}, "force": True}),
    (PauseRequest, {}, {"resume_in": 1, "until": AT, "reason": "r"}),
    (EditRequest, {}, {"payload": 1, "headers": {}, "expected_md5": "0" * 32}),
    (NewSilence, {}, {"kind": "k", "topic": "t", "error_fingerprint": "f", "ends_in": 1, "until": AT}),
    (ScheduleChangeRequest, {}, dict.fromkeys(ScheduleChangeRequest.model_fields)),
]


def bodies(given: dict[str, Any], values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield bodies that have up to two more members, each with its value or with null.

    They have up to three where few are known, and to publish: a payload and a key allow what neither of them does.
    """
    for count in range(4 if len(values) <= 5 or given == {"topic": "t"} else 3):
        for names in combinations(values, count):
            for chosen in product(*({None, 0} for _ in names)):
                more = {name: None if null is None else values[name] for name, null in zip(names, chosen, strict=True)}
                yield {**given, **more}


def is_taken(model: type[BaseModel], body: dict[str, Any]) -> bool:
    try:
        read = model.model_validate(body)
        if isinstance(read, PublishRequest):
            to_columns(read.new())
    except (ValidationError, InvalidMessage):
        return False
    return True


@pytest.mark.parametrize(("model", "given", "values"), TRIED, ids=[f"{m.__name__}-{g}" for m, g, _ in TRIED])
def test_the_description_accepts_exactly_what_the_server_does(
    model: type[BaseModel], given: dict[str, Any], values: dict[str, Any]
) -> None:
    schema = {"$ref": f"#/components/schemas/{model.__name__}", "components": description()["components"]}
    described = Draft202012Validator(schema)

    tried = [(body, is_taken(model, body)) for body in bodies(given, values)]

    assert [(body, taken) for body, taken in tried if described.is_valid(body) != taken] == []
    assert {taken for _, taken in tried} == {True, False}


def models(base: type[BaseModel] = RequestModel) -> Iterator[type[BaseModel]]:
    """Yield the models of bodies."""
    for model in base.__subclasses__():
        if model.__name__ in description()["components"]["schemas"]:
            yield model
        yield from models(model)


def test_36_0_is_an_integer_everywhere_and_a_text_and_a_switch_are_none() -> None:
    tried = {}
    for model in models():
        schema = description()["components"]["schemas"][model.__name__]
        for name, member in schema["properties"].items():
            kinds = [each.get("type") for each in member.get("anyOf", [member])]
            if "integer" in kinds or ("number" in kinds and "string" not in kinds):
                body = {**schema["examples"][0], name: 3.0} if schema.get("examples") else {"payload": 1, name: 3.0}
                found = [given for given in (3.0, "3", True) if _is_value(model, body, name, given)]
                tried[model.__name__, name] = found

    assert {member: found for member, found in tried.items() if found != [3.0]} == {}
    assert len(tried) > 25


def _is_value(model: type[BaseModel], body: dict[str, Any], name: str, value: Any) -> bool:
    try:
        model.model_validate({**body, name: value})
    except ValidationError as error:
        return not any(each["loc"][:1] == (name,) for each in error.errors())
    return True


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/v1/messages", {"topic": "t", "prio": 1}, "body.prio: there is no such member; did you mean 'priority'?"),
        ("/v1/messages", {"topic": "t", "payload": 1, "priority": 10}, "body.priority: must be at most 9"),
        ("/v1/messages", {"payload": 1}, "body.topic: is missing"),
        ("/v1/messages", {"topic": "t", "payload": 1, "on_conflict": "skip"}, "expected 'error', 'replace', 'ignore'"),
        ("/v1/messages", {"topic": "t", "payload": 1, "key": ""}, "body.key: must have at least 1 characters"),
        (
            "/v1/messages/batch",
            {"messages": [{"topic": "t", "payload": 1, "ky": 1}]},
            "body.messages.0.ky: there is no",
        ),
        ("/v1/messages", [], "body: expected an object"),
        ("/v1/messages", {"topic": "a b", "payload": 1}, "body.topic: is no topic name: 1 to 200 of"),
        ("/v1/messages", {"topic": "t", "payload": 1, "key": "a\x01"}, "must have printable characters only"),
        ("/v1/dead/redrive", {"ids": ["7"]}, "body.ids.0: expected a whole number"),
        ("/v1/dead/redrive", {"filter": {}, "force": 0}, "body.force: expected true or false"),
        ("/v1/dead/redrive", {"filter": {}, "rate": "5"}, "body.rate: expected a number"),
        ("/v1/dead/redrive", {"filter": {"since": 0}}, "body.filter.since: must be a time in ISO 8601"),
        ("/v1/dead/redrive", {"filter": {"topics": "a"}}, "there is no such member; did you mean 'topic'?"),
        ("/v1/dead/redrive", {}, "body: give either ids or filter"),
        ("/v1/dead/requeue", {"ids": []}, "body.ids: must have at least 1 items"),
        ("/v1/claim", {"topics": "t"}, 'body.topics: expected a list like ["a", "b"]'),
        ("/v1/alerts/replay", {"id": "7"}, "body.id: expected an id like"),
        ("/v1/schedules", {"name": "s", "topic": "t", "cron": ""}, "body.cron: must have at least 1 characters"),
        ("/v1/schedules", {"name": "s", "topic": "t", "cron": "@daily", "jitter": "2d"}, "must be between 0s and 1d"),
        ("/v1/silences", {"ends_in": "1h"}, "body: give kind, topic or error_fingerprint"),
    ],
)
def test_an_invalid_body_is_refused_in_our_own_words(http: httpx.Client, path: str, body: Any, detail: str) -> None:
    answer = http.post(path, json=body)

    assert (answer.status_code, code(answer)) == (422, "invalid_request")
    assert detail in answer.json()["detail"]


def test_36_0_is_an_integer_of_a_policy_too(http: httpx.Client) -> None:
    assert http.patch("/v1/topics/b.policy", json={"max_attempts": 3.0, "breaker": {"probes": 2.0}}).status_code == 200

    assert http.get("/v1/topics/b.policy").json()["own"]["max_attempts"] == 3


def test_a_threshold_about_no_topic_is_refused_for_a_topic_in_our_own_words(http: httpx.Client) -> None:
    answer = http.patch("/v1/topics/b.threshold/thresholds", json={"min_workers": 2})

    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "min_workers is about no topic: set it for '*', not for b.threshold",
    )


def test_seconds_since_1970_are_no_time_of_a_filter(http: httpx.Client) -> None:
    assert "ISO 8601" in http.get("/v1/dead", params={"until": "0"}).json()["detail"]
