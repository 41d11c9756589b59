"""messages.policy_topic_bit: the function, the trigger's condition and the statement of publish() agree about the bit of a topic."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgrouse.publishing.publish_statement import HAS_NO_POLICY
from tests.sql.queue import Queue

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,199}\Z")
TRIGGER = "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t WHERE t.tgname = 'admit_message'"


def test_it_is_one_of_the_62_bits_above_the_lowest(queue: Queue) -> None:
    bits = {queue.call("policy_topic_bit", f"t{n}") for n in range(1000)}

    assert bits == {2**n for n in range(1, 63)}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(topic=NAMES)
def test_all_who_ask_for_it_agree(queue: Queue, topic: str) -> None:
    (condition,) = re.findall(r"WHEN \(\((.* IS DISTINCT FROM 0)", queue.value(TRIGGER))
    asked = {
        "trigger": condition.removeprefix("(").replace("(new.topic)::text", "%(topic)s::text"),
        "publish()": f"({HAS_NO_POLICY.format(topic='%(topic)s::text')}) IS NOT TRUE",
    }
    bit = queue.call("policy_topic_bit", topic)
    for bits, expected in ((bit | 1, True), ((2**63 - 1) & ~bit, False)):
        queue.value("SELECT setval('messages.policy_topic_bits', %s)", [bits])
        answers = {
            name: queue.value(f"SELECT {text}".replace(" % 62", " %% 62"), {"topic": topic})
            for name, text in asked.items()
        }
        assert answers == dict.fromkeys(asked, expected)
        assert queue.call("may_have_policy", topic) is expected
