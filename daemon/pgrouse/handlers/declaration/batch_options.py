"""Decides from the configuration and the signature of a handler whether it takes batches.

It also finds contradictions between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pgrouse.config import config
from pgrouse.config.source import ConfigProblem, TopicKeyError
from pgrouse.errors import ConfigError
from pgrouse.handlers.batch.batch import Item
from pgrouse.handlers.handler import BatchOptions


def to_batch_options(chosen: config.TopicSettings, arguments: int, wanted: Any) -> tuple[BatchOptions | None, Any]:
    """Return how the messages of a topic are gathered, and the type of one payload.

    Args:
        chosen: the configuration of the topic.
        arguments: how many arguments its handler takes.
        wanted: the annotation of the first one; Any if it has none.

    Raises:
        ConfigError: the handler must take lists and does not, or takes lists of items and must not.
    """
    is_list, element = _list_element(wanted)
    as_items = element is Item or get_origin(element) is Item
    if chosen.batch_size is None:
        if as_items:
            raise ConfigError(
                f"{chosen.handler} takes a list of Items, which only batches have: add batch_size = 100, say"
            )
        return None, wanted
    if not arguments or not is_list:
        raise TopicKeyError("batch_size", _not_a_list(chosen, wanted if arguments else None))
    if chosen.ack_policy == "manual" and not as_items:
        fix = f"with batch_size, let {chosen.handler} take a list[Item]"
        raise TopicKeyError("ack_policy", f'"manual" needs a handler that can acknowledge: {fix}')
    if as_items:
        element = next(iter(get_args(element)), Any)
    return BatchOptions(chosen.batch_size, chosen.batch_timeout.total_seconds(), as_items), element


def find_batch_problems(settings: config.Config) -> list[ConfigProblem]:
    """Return the contradictions between keys about batches."""
    found = []
    most = settings.worker.claim_batch_size
    for topic, chosen in settings.topics.items():
        if chosen.batch_size is None and chosen.batch_timeout:
            text = "nothing is gathered without batch_size: add batch_size = 100, say, or remove it"
            found.append(settings.problem(("topics", topic, "batch_timeout"), text))
        if chosen.batch_size is not None and chosen.batch_size > most:
            text = (
                f"{chosen.batch_size} is more than worker.claim_batch_size, {most}, which is what one claim brings: "
                f"set that to at least {chosen.batch_size}, or lower batch_size"
            )
            found.append(settings.problem(("topics", topic, "batch_size"), text))
    return found


def _not_a_list(chosen: config.TopicSettings, wanted: Any) -> str:
    shown = "nothing" if wanted is None else _annotation_text(wanted)
    fix = "let it take one" if wanted is None else f"annotate its first argument as list[{shown}]"
    return (
        f"{chosen.handler} takes {shown}, but gets a list of at most {chosen.batch_size}: {fix}, or remove batch_size"
    )


def _annotation_text(annotation: Any) -> str:
    """Write an annotation as in the code, without modules: `Item[Order]`."""
    inner = ", ".join(map(_annotation_text, get_args(annotation)))
    name = getattr(get_origin(annotation) or annotation, "__name__", str(annotation))
    return f"{name}[{inner}]" if inner else name


def _list_element(wanted: Any) -> tuple[bool, Any]:
    """Return whether an annotation is a list (or missing), and the type of the list's elements."""
    if wanted is Any:
        return True, Any
    if (get_origin(wanted) or wanted) in (list, Sequence):
        return True, next(iter(get_args(wanted)), Any)
    return False, None
