"""Messages in the admin.

Lists are the queue's bounded search, so that no page counts or reads a big table; what is done goes through the Client.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import Error, transaction
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse

from pgrouse.client.client import Client
from pgrouse.client.message_state import DEAD, LIVE
from pgrouse.client.queries.message import MessageRecord
from pgrouse.client.redrive import REDRIVEN_OUTCOMES
from pgrouse.contrib.django import project
from pgrouse.contrib.django.models import DeadMessage, QueuedMessage, WaitingMessage
from pgrouse.errors import MessageNotFound, PgrouseError
from pgrouse.values.format import plural

# The maximum number of messages in a list; filters and the search find others.
LISTED = 1000
LIVE_STATE = "{0}.live_state(id, topic, channel, claim_id, available_at, history, {0}.now())".format(
    project.schema().quoted
)


class TopicFilter(admin.SimpleListFilter):
    """Messages of one topic."""

    title = parameter_name = "topic"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the topics of the listed messages, and the chosen one."""
        topics = set(model_admin.get_queryset(request).values_list("topic", flat=True)) | {self.value()}
        return [(topic, topic) for topic in sorted(topics - {None})]

    def has_output(self) -> bool:
        """Show the filter also for a single topic."""
        return bool(self.lookup_choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Change nothing: the search has already looked for it."""
        return queryset


class StateFilter(admin.SimpleListFilter):
    """Messages in one state, or with one result."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the states."""
        return [(state, state.replace("_", " ")) for state in model_admin.states]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Change nothing: the search has already looked for it."""
        return queryset


def _json_area(rows: int) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "cols": 80, "spellcheck": "false", "style": "font-family: monospace"})


class MessageForm(forms.ModelForm):
    """The contents of a message, as JSON."""

    payload = forms.CharField(widget=_json_area(12), required=False)
    headers = forms.CharField(widget=_json_area(4), required=False)
    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    class Meta:
        fields: Sequence[str] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        with queue_client() as client:
            self.record = _find(client, self.instance.pk)
        if self.record is not None:
            self.initial["payload"] = _pretty(self.record.payload_json)
            self.initial["headers"] = _pretty(self.record.headers_json)
            self.initial["seen"] = _digest(self.record)
            if self.record.body is not None:
                self.fields["payload"].help_text = f"It has no payload but a body of {len(self.record.body):,} bytes."

    def clean_payload(self) -> Any:
        """Return the payload, if it was changed."""
        return self._changed("payload")

    def clean_headers(self) -> Any:
        """Return the headers, if they were changed."""
        headers = self._changed("headers")
        if headers is not None and not isinstance(headers, dict):
            raise forms.ValidationError("headers are a JSON object")
        return headers

    def _changed(self, name: str) -> Any:
        text = self.cleaned_data[name]
        # Browsers send other line ends than they were sent.
        if not text.strip() or text.split() == self.initial.get(name, "").split():
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"this is not JSON: {error}") from error


class MessageAdmin(admin.ModelAdmin):
    """What both lists have in common."""

    form = MessageForm
    states: tuple[str, ...] = ()
    list_filter = (TopicFilter, StateFilter)
    # The box is there; `search` does the work.
    search_fields = ("topic",)
    search_help_text = "an id, a key, or a text of the error"
    list_per_page = 50
    list_max_show_all = LISTED
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    view_on_site = False
    save_on_top = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the messages that a list shows, or of which one is opened."""
        everything = self.model._default_manager.using(project.alias()).order_by("-id")  # noqa: SLF001 - Django's
        if request.resolver_match is None or not str(request.resolver_match.url_name).endswith("_changelist"):
            return everything
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if chosen and request.POST.get("select_across") != "1":
            return everything.filter(pk__in=chosen[:LISTED])
        return everything.filter(pk__in=self._found(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Change nothing: get_queryset has searched."""
        return queryset, False

    def _found(self, request: HttpRequest) -> list[int]:
        """Return the ids of the messages that fit the filters, of a bounded search; once per request."""
        known = getattr(request, "_pgrouse_found", None)
        if known is None:
            with queue_client() as client:
                known = self.search(
                    client, request.GET.get("topic"), request.GET.get("state"), request.GET.get("q", "").strip()
                )
            request._pgrouse_found = known  # noqa: SLF001 - our own
        return known

    def search(self, client: Client, topic: str | None, state: str | None, text: str) -> list[int]:
        """Return the ids of messages.

        Args:
            client: of the queue.
            topic: of this topic.
            state: in this state, or with this result.
            text: with this id, key or error.
        """
        if text.isascii() and text.isdecimal():
            return [int(text)] if len(text) < 19 else []  # noqa: PLR2004 - digits of a bigint
        states = [state] if state in self.states else list(self.states)
        filters: list[dict[str, Any]] = [{"error": text}, {"key": text}] if text else [{}]
        pages = [client.find_messages(topic=topic, states=states, limit=LISTED, **each) for each in filters]
        return list(dict.fromkeys(found.id for page in pages for found in page.messages))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Messages are published by code."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Messages are cancelled, and stay in the archive."""
        return False

    def _permits(self, request: HttpRequest, verb: str) -> bool:
        return bool(request.user.has_perm(f"pgrouse.{verb}_{self.model._meta.model_name}"))  # noqa: SLF001

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return all columns, and the contents as text."""
        return [*self._columns(), "shown_payload", "shown_headers"]

    def _columns(self) -> list[str]:
        return [each.name for each in self.model._meta.fields if each.name != "claim_id"]  # noqa: SLF001 - Django's

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the contents, and below them what is known of the message."""
        contents = ["payload", "headers"]
        if self.has_change_permission(request, obj):
            return [(None, {"fields": [*contents, "seen"]}), ("Message", {"fields": self._columns()})]
        return [
            (None, {"fields": ["shown_payload", "shown_headers"]}),
            ("Message", {"fields": self._columns()}),
        ]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Do what the form is for; nothing is written here."""
        request._pgrouse_refusal = self._act(request, lambda client: self.store(client, obj, form))  # noqa: SLF001

    def store(self, client: Client, obj: Any, form: Any) -> str:
        """Store what was edited; return why not, empty if it was."""
        raise NotImplementedError

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log a change that took place."""
        return None if getattr(request, "_pgrouse_refusal", None) else super().log_change(request, obj, message)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Say what became of the change."""
        refusal = getattr(request, "_pgrouse_refusal", None)
        if refusal:
            self.message_user(request, refusal, messages.ERROR)
            return self.response_post_save_change(request, obj)
        return super().response_change(request, obj)

    def _act(self, request: HttpRequest, action: Callable[[Client], Any]) -> Any:
        """Return what an action returns, or the error that the server has against it, as text."""
        try:
            with queue_client(f"django:{request.user.get_username()}") as client:
                return action(client)
        except (Error, PgrouseError) as error:
            return str(error).splitlines()[0]

    def _report(self, request: HttpRequest, wanted: int, done: list[int] | str, what: str) -> None:
        """Tell the user how many messages an action has changed."""
        if isinstance(done, str):
            self.message_user(request, done, messages.ERROR)
            return
        for message_id in done:
            self.log_change(request, self.model(pk=message_id), what)
        left = wanted - len(done)
        self.message_user(
            request, f"{plural(len(done), 'message')} {what}.", messages.SUCCESS if done else messages.WARNING
        )
        if left:
            self.message_user(
                request,
                f"{plural(left, 'message')} left as {'it was' if left == 1 else 'they were'}.",
                messages.WARNING,
            )

    @admin.display(description="payload")
    def shown_payload(self, obj: QueuedMessage) -> str:
        """The payload, for those who may not change it."""
        return self._contents(obj, "payload_json")

    @admin.display(description="headers")
    def shown_headers(self, obj: QueuedMessage) -> str:
        """The headers, for those who may not change them."""
        return self._contents(obj, "headers_json")

    def _contents(self, obj: QueuedMessage, name: str) -> str:
        with queue_client() as client:
            record = _find(client, obj.pk)
        return _pretty(getattr(record, name)) if record else ""


@admin.register(WaitingMessage)
class WaitingMessageAdmin(MessageAdmin):
    """Messages that have not ended: retry, cancel, edit."""

    states = LIVE
    list_display = ("id", "topic", "state", "attempts", "key", "available_at")
    actions = ("retry_now", "cancel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return them with what the queue calls each."""
        return super().get_queryset(request).annotate(word=RawSQL(LIVE_STATE, ()))  # noqa: S611 - a constant

    @admin.display(description="state")
    def state(self, obj: Any) -> str:
        """Running, ready or what it waits for."""
        return str(obj.word)

    @admin.action(description="Retry selected messages now", permissions=["retry"])
    def retry_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Let messages that wait for their time run at once."""
        ids = list(queryset.values_list("pk", flat=True))
        self._report(request, len(ids), self._act(request, lambda client: client.retry_now(ids)), "made ready")

    @admin.action(description="Cancel selected messages", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """End messages, also running ones."""
        ids = list(queryset.values_list("pk", flat=True))
        reason = f"by {request.user.get_username()} in the admin"
        self._report(request, len(ids), self._act(request, lambda client: client.cancel(ids, reason)), "cancelled")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retry messages."""
        return self._permits(request, "retry")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel messages."""
        return self._permits(request, "cancel")

    def store(self, client: Client, obj: Any, form: Any) -> str:
        """Edit the message, unless it was claimed or changed since it was shown."""
        payload, headers = form.cleaned_data["payload"], form.cleaned_data["headers"]
        if payload is None and headers is None:
            return "Nothing was changed."
        outcome = client.edit(obj.pk, payload=payload, headers=headers, seen=form.cleaned_data["seen"] or None)
        return REFUSED.get(outcome, "")


@admin.register(DeadMessage)
class DeadMessageAdmin(MessageAdmin):
    """Dead messages: redrive them, as they are or edited."""

    states = DEAD
    list_display = ("id", "topic", "result", "last_line", "archived_at", "redriven_as")
    actions = ("redrive",)
    change_form_template = "admin/pgrouse/deadmessage/change_form.html"

    @admin.display(description="error")
    def last_line(self, obj: DeadMessage) -> str:
        """The end of the error, where a traceback has its exception."""
        lines = (obj.error or "").strip().splitlines()
        return lines[-1][:120] if lines else ""

    @admin.action(description="Redrive selected messages", permissions=["redrive"])
    def redrive(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Put dead messages back."""
        ids = list(queryset.values_list("pk", flat=True))
        became = self._act(request, lambda client: client.redrive(ids))
        if isinstance(became, str):
            self._report(request, len(ids), became, "")
            return
        done = [each.archived_id for each in became if each.outcome in REDRIVEN_OUTCOMES]
        self._report(request, len(ids), done, "redriven")
        others = Counter(each.outcome.replace("_", " ") for each in became if each.outcome not in REDRIVEN_OUTCOMES)
        for outcome, count in others.items():
            self.message_user(request, f"{plural(count, 'message')}: {outcome}.", messages.WARNING)

    def has_redrive_permission(self, request: HttpRequest) -> bool:
        """Whether the user may redrive messages."""
        return self._permits(request, "redrive")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may redrive a message with other contents; it is put back once."""
        return self.has_redrive_permission(request) and (obj is None or obj.redriven_as is None)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user may look at messages."""
        return self._permits(request, "view") or self.has_redrive_permission(request)

    def store(self, client: Client, obj: Any, form: Any) -> str:
        """Redrive the message with what the form has."""
        payload, headers = form.cleaned_data["payload"], form.cleaned_data["headers"]
        became = client.redrive_edited(obj.pk, payload=payload, headers=headers, merge=False)
        return (
            ""
            if became.outcome in REDRIVEN_OUTCOMES
            else f"The message was not redriven: {became.outcome.replace('_', ' ')}."
        )


REFUSED = {
    "changed": "The message was not edited: someone else has changed it since it was shown.",
    "running": "The message was not edited: it is running.",
    "ended": "The message was not edited: it has ended.",
}


def _find(client: Client, message_id: int | None) -> MessageRecord | None:
    try:
        return client.message(message_id) if message_id is not None else None
    except MessageNotFound:
        return None


def _pretty(text: str | None) -> str:
    """Return JSON with line breaks. Numbers stay as they were written."""
    if text is None:
        return ""
    try:
        return json.dumps(json.loads(text, parse_float=_exact), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _exact(text: str) -> float:
    """Return a number that is written as it was read."""
    number = float(text)
    if repr(number) != text:
        raise ValueError(text)
    return number


def _digest(record: MessageRecord) -> str:
    content = record.body if record.payload_json is None else record.payload_json.encode()
    return hashlib.md5(content or b"", usedforsecurity=False).hexdigest()


@contextmanager
def queue_client(actor: str = "") -> Iterator[Client]:
    """Yield a client in a transaction of Django, or a savepoint of the one that is open.

    Errors of the server are Django's.

    Args:
        actor: whose name the audit log gets; that of the database user unless given.
    """
    connection = project.connection()
    with transaction.atomic(using=connection.alias):
        connection.ensure_connection()
        with connection.wrap_database_errors, connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.set_config(%s, %s, true)", [project.schema().setting("actor"), actor])
            yield Client(connection.connection)
