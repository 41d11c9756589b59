"""What a handler in a child process cannot do: the child has no keys, and no connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgrouse.client.message import Message
from pgrouse.worker.child.child_process import ChildEncryption, ChildRuntime

Claimed = Callable[..., Message]


def test_an_output_of_an_encrypted_topic_is_refused(claimed: Claimed) -> None:
    with pytest.raises(RuntimeError, match="a child process has no keys: complete the message without an output"):
        ChildEncryption(is_encrypted=True).encrypt_output(claimed(), "1")


def test_an_output_for_an_encrypted_message_is_refused_whatever_its_topic(claimed: Claimed) -> None:
    marked = claimed(headers='{"pgrouse-encrypted-by": "k"}')

    with pytest.raises(RuntimeError, match="has no keys"):
        ChildEncryption(is_encrypted=False).encrypt_output(marked, "1")


def test_no_output_and_outputs_of_other_topics_pass(claimed: Claimed) -> None:
    assert ChildEncryption(is_encrypted=True).encrypt_output(claimed(), None) is None
    assert ChildEncryption(is_encrypted=False).encrypt_output(claimed(), "1") == "1"


@pytest.mark.parametrize("pool", ["pool", "blocking_pool"])
def test_a_child_has_no_connection_and_says_what_to_do(pool: str) -> None:
    runtime = ChildRuntime(is_encrypted=False, given_events=())

    with pytest.raises(RuntimeError, match=r"ctx\.transaction\(\), ctx\.publish\(\).* open a connection of your own"):
        getattr(runtime, pool)
