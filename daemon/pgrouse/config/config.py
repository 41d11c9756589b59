"""The configuration: a TOML file; the environment overrides it, and the flags of the command line override both.

Every value is checked once, here. All problems are reported together, each with the line to fix.
docs/reference/configuration.md lists the keys.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from pgrouse.config.alerts import AlertsSettings
from pgrouse.config.crypto import CryptoSettings
from pgrouse.config.dsn import is_dsn
from pgrouse.config.duration import Duration, between
from pgrouse.config.oidc import OidcSettings
from pgrouse.config.policy.policy_settings import ChannelPolicy, TopicPolicy
from pgrouse.config.policy.topic_policy import DEFAULTS, DesiredPolicy, invalid_keywords
from pgrouse.config.problem import to_problem
from pgrouse.config.schedules import ScheduleName, ScheduleSettings
from pgrouse.config.section import S, Section
from pgrouse.config.source import (
    COMMAND,
    ConfigProblem,
    ConfigProblems,
    ConfigSource,
    HostProgram,
    Key,
    Origin,
    read_environment,
    read_file,
    show_key,
)
from pgrouse.database.schema_name import WRITTEN, checked
from pgrouse.values.printable import printable
from pgrouse.values.topic_pattern import MAX_BYTES, NAME_OR_DEFAULTS, NAME_OR_PATTERN, is_pattern

# pydantic has a method of that name, which it took out of use.
warnings.filterwarnings("ignore", 'Field name "schema" in "DatabaseSettings" shadows an attribute in parent')

DEFAULT_PATH = Path("pgrouse.toml")


def _dsn(text: str) -> str:
    """Check a connection string.

    libpq's own error text is not passed on: it repeats parts of the string, which may be the password.
    """
    if (scheme := re.match(r"postgres(?:ql)?(\+\w+)://", text)) is not None:
        raise ValueError(f"this is an address for SQLAlchemy: leave out {scheme[1]}")
    if not is_dsn(text):
        raise ValueError('expected a connection string like "postgresql://user@host/database" or "host=... dbname=..."')
    return text


def _web_address(text: str) -> str:
    """Check the address of the dashboard; links are made by appending to it."""
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", text):
        raise ValueError(
            f'expected an address like "https://queue.example.com", without a password, found {text!r:.80}'
        )
    return text.rstrip("/")


Dsn = Annotated[str, AfterValidator(_dsn)]
SchemaText = Annotated[str, AfterValidator(printable), AfterValidator(checked)]
PolicyName = Annotated[str, StringConstraints(pattern=NAME_OR_DEFAULTS, max_length=MAX_BYTES)]
ChannelName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$"), AfterValidator(printable)]
TopicOrPattern = Annotated[str, StringConstraints(pattern=NAME_OR_PATTERN, max_length=MAX_BYTES)]
WorkerName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$"), AfterValidator(printable)]
HandlerName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
]
DeclaringModule = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
ModuleName = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)$")]
# An address, a name, or an IPv6 address in brackets; then the port.
ListenAddress = Annotated[str, StringConstraints(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^(\*|(\*\.)?[A-Za-z0-9._-]+)$")]
WebAddress = Annotated[str, AfterValidator(_web_address)]
DashboardName = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(printable)]
LenientPath = Annotated[Path, Field(strict=False)]


class DatabaseSettings(Section):
    """How to reach PostgreSQL."""

    dsn: Dsn = Field(default="", repr=False)
    """Connection string (URI or keywords). Empty: `DATABASE_URL`, else what libpq finds itself (PG* variables, service
    file)."""
    listen_dsn: Dsn | None = Field(default=None, repr=False)
    """Where to LISTEN, if not at `dsn`. LISTEN needs a direct connection; a pooler in transaction mode does not provide
    one."""
    schema: SchemaText = WRITTEN  # type: ignore[assignment]
    """The schema of the queue. The names of its roles, NOTIFY channels and jobs begin with it, so that several queues
    may be in one database."""
    connect_timeout: Annotated[Duration, between(S, 300 * S)] = 10 * S
    """How long one attempt to connect may take; whole seconds."""
    prepare: bool = True
    """Use prepared statements, except through a pooler that would lose them: that is tried. `false`: never use them."""
    pool_size: int = Field(default=10, ge=1, le=1000)
    """Connections for handlers' own transactions, per process; opened when needed."""
    apply_policies: Literal["never", "migrate", "run"] = "migrate"
    """When the policies and schedules of the file and of the code are written into the database: by `pgrouse migrate`,
    or by `pgrouse run` too."""
    application: WorkerName | None = None
    """Whose schedules these are, if several applications with files or code of their own declare schedules in one
    database: each removes only its own."""


class WorkerSettings(Section):
    """How a daemon works."""

    name: WorkerName | None = None
    """The worker's name in the registry and in `locked_by`. By default it is made of the host name, the process id and
    a random part. With several processes, each adds its number."""
    concurrency: int = Field(default=100, ge=1, le=10_000)
    """At most this many handlers run at once, per process."""
    threads: int = Field(default=16, ge=1, le=1000)
    """At most this many sync handlers at once, per process."""
    claim_connections: int = Field(default=2, ge=1, le=16)
    """Connections that claim and settle in parallel, per process."""
    claim_batch_size: int = Field(default=1000, ge=1, le=10_000)
    """At most this many messages in one claim."""
    prefetch: int | None = Field(default=None, ge=0, le=10_000)
    """The number of messages to claim in addition to those that can begin at once; they wait locked, so that no other
    worker can take them. Unless given: as many as end in about 20 ms, and what waits for more than half a second is
    released."""
    poll_interval: Annotated[Duration, between(0.1 * S, 3600 * S)] = 5 * S
    """Look for messages at least this often (± 20 %): the longest delay after a lost notification."""
    degraded_poll_interval: Annotated[Duration, between(0.05 * S, 60 * S)] = 1 * S
    """The same while there is no working listener."""
    shutdown_timeout: Annotated[Duration, between(0 * S, 86400 * S)] = 25 * S
    """How long running handlers have to end after SIGTERM before they are cancelled."""
    maintenance_interval: Annotated[Duration, between(0.1 * S, 3600 * S)] = 5 * S
    """How often the daemon runs the maintenance functions."""
    processes: int = Field(default=1, ge=1, le=256)
    """Daemon processes; each has the concurrency, threads and connections above."""


class HandlersSettings(Section):
    """Where handler modules are found, and which of them may be used."""

    import_path: list[LenientPath] = [Path()]
    """Folders that are put on the import path, relative to the file (without a file, to the working directory)."""
    allowed_modules: list[ModuleName] = []
    """Modules outside `import_path` that handlers may come from: `"shop"` permits `shop` and `shop.jobs`, `"*"` every
    module."""
    modules: list[DeclaringModule] = []
    """Modules whose `@topic` functions are handlers. They are imported, and may be installed ones."""

    lifespan: HandlerName | None = None
    """A function, as `module:function`, that returns an (async) context manager: what it yields is `ctx.resources`. It
    is opened before the first handler of a process, and closed after the last."""
    startup_timeout: Annotated[Duration, between(S, 3600 * S)] = 60 * S
    """How long the start of `lifespan` may take; its end has the rest of `worker.shutdown_timeout`."""

    middleware: list[HandlerName] = []
    """Functions, as `module:function`, that are called around every handler, the outermost first: `async def` ones
    around async handlers, the others around the others."""

    on_failure: list[HandlerName] = []
    """Functions, as `module:function`, that are called with a `Failure` after every failed attempt."""
    on_death: list[HandlerName] = []
    """The same, after an attempt that no other follows."""

    def permits(self, module: str) -> bool:
        """Return whether a handler may come from this module, without importing anything.

        A module found in one of the folders of `import_path` may be used; an installed one, or one of the standard
        library, only if `allowed_modules` or `modules` names it.
        """
        if self.declares(module):
            return True
        if any(name in ("*", module) or module.startswith(f"{name}.") for name in self.allowed_modules):
            return True
        top = module.partition(".")[0]
        return (
            top not in sys.stdlib_module_names
            and PathFinder.find_spec(top, [str(folder) for folder in self.import_path]) is not None
        )

    def declares(self, module: str) -> bool:
        """Return whether the topics of a module are looked for: `modules` names it, or a package that contains it."""
        return any(module == name or module.startswith(f"{name}.") for name in self.modules)


class TopicSettings(TopicPolicy):
    """The handler of one topic, and the topic's policy: `[topics."orders.created"]`.

    `[topics."orders.*"]` is for all topics with one more level, `[topics."orders.**"]` for those with any number of
    them; `[topics."*"]` has the defaults of policies.
    """

    handler: HandlerName = ""
    """The function, as `module:function`. A table without one sets policies only."""
    concurrency: int | None = Field(default=None, ge=1, le=10_000)
    """At most this many handlers of the topic run at once, per process. Default: the worker's."""
    isolation: Literal["none", "process"] = "none"
    """`process`: run the handler in a child process. If the child crashes, leaks or hangs, the daemon is not
    affected."""
    batch_size: int | None = Field(default=None, ge=1, le=10_000)
    """Give the handler a list of at most this many messages at once. `concurrency` then counts such batches, and is 1
    unless given."""
    batch_timeout: Annotated[Duration, between(0 * S, 60 * S)] = 0 * S
    """How long the first message of a batch waits until others fill the batch. 0s: begin at once with the messages that
    are ready."""
    ack_policy: Literal["ack", "ack_first", "reject_on_error", "nack_on_error", "manual"] = "nack_on_error"
    """What happens to a message whose handler raised an exception: `nack_on_error` tries again while attempts are left,
    `reject_on_error` rejects the message, `ack` completes it anyway, `ack_first` completes it before the handler runs
    (at most once), `manual` rejects it unless the handler acknowledged it."""
    retry_strategy: HandlerName | None = None
    """A function, as `module:function`, that decides whether and when a failed attempt is followed by another one.
    Default: the topic's backoff decides."""
    log_bytes: int = Field(default=0, ge=0, le=262_144)
    """Keep the log lines of each attempt with the message, the last ones: at most this many bytes. 0: none. Not with
    `batch_size`."""
    channels: dict[ChannelName, ChannelPolicy] = Field(default_factory=dict)
    """Policies of single channels."""
    subscriptions: list[TopicOrPattern] = Field(default_factory=list)
    """Topics, or patterns of topics, whose messages this topic also gets, each as a message of its own."""

    @property
    def desired_policy(self) -> DesiredPolicy:
        """The policies that the table sets."""
        return DesiredPolicy(self, self.channels, tuple(self.subscriptions))

    @model_validator(mode="after")
    def _check_not_empty(self, info: ValidationInfo) -> TopicSettings:
        if (info.context or {}).get("before_code"):
            return self  # code may name the handler later
        if not self.handler and (not self.desired_policy or self.model_fields_set & WITH_HANDLER):
            raise ValueError('handler is missing: name the function like "module:function"')
        return self


# Keys of a topic's table that set how its handler runs.
WITH_HANDLER = frozenset(TopicSettings.model_fields) - frozenset(
    [*TopicPolicy.names(), "handler", "channels", "subscriptions"]
)


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe events to log."""
    format: Literal["auto", "console", "json"] = "auto"
    """`auto`: console on a terminal, else JSON lines."""


class WebSettings(Section):
    """The web server, `pgrouse web`: the HTTP API and the dashboard."""

    listen: ListenAddress = "127.0.0.1:8420"
    """Address and port. If other machines can reach the address, the server refuses to start while there is neither a
    token (`pgrouse token add`) nor `[web.oidc]`. Port 0: any free port."""
    dsn: Dsn | None = Field(default=None, repr=False)
    """The connection string of the web server, if it differs from `database.dsn`: for example of a user with fewer
    rights."""
    allowed_hosts: list[HostName] = []
    """The names under which browsers reach it, as in `queue.example.com` or `*.example.com`. IP addresses, `localhost`
    and the machine's own name are always accepted."""
    proxies: list[str] = []
    """Addresses or networks of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted."""
    pool_size: int = Field(default=8, ge=1, le=1000)
    """The maximum number of connections to PostgreSQL."""
    statement_timeout: Annotated[Duration, between(0.1 * S, 300 * S)] = 5 * S
    """How long one query may take."""
    max_body_bytes: int = Field(default=33_554_432, ge=1024, le=268_435_456)
    """The maximum size of a request."""
    session_ttl: Annotated[Duration, between(60 * S, 30 * 86400 * S)] = 12 * 3600 * S
    """How long a login to the dashboard lasts."""
    url: WebAddress | None = None
    """The address under which people open the dashboard, as in `https://queue.example.com`: alerts link to it."""
    run_maintenance: bool = True
    """Run the maintenance functions as a daemon does, every `worker.maintenance_interval`: locks expire and schedules
    fire even if no daemon runs."""
    deliver_alerts: bool = True
    """Deliver alerts to the sinks in `[alerts]` as a daemon does: they are sent even if no daemon runs."""
    dashboards: dict[DashboardName, WebAddress] = Field(default_factory=dict)
    """The addresses of dashboards of other queues, by name: a menu on each page leads to them."""
    redact: HandlerName | None = None
    """A function, as `module:function`, that decides which contents of messages viewers see. It is called with a
    `Content`, and returns what is shown."""
    oidc: OidcSettings | None = None
    """Login by a provider of OpenID Connect."""

    @model_validator(mode="after")
    def _has_an_address(self) -> WebSettings:
        if self.oidc is not None and self.url is None:
            raise ValueError("oidc needs web.url: the provider sends browsers back to it")
        return self


class MetricsSettings(Section):
    """What each daemon process reports about itself over HTTP: /metrics, /livez and /readyz."""

    listen: ListenAddress | None = None
    """Address and port, as in `127.0.0.1:9465`; without it, nothing is served. With several processes, the second one
    uses the next port, and so on. Port 0: any free port. The pages contain no payloads, so other machines may reach
    them. Needs `pip install 'pgrouse[metrics]'`."""
    liveness_timeout: Annotated[Duration, between(S, 3600 * S)] = 30 * S
    """How long the event loop or the heartbeat may be stuck before /livez fails, so that a supervisor restarts the
    daemon."""


class OtelSettings(Section):
    """OpenTelemetry.

    The standard variables OTEL_* set where spans and metrics are sent, how many, and under which name.
    """

    enabled: bool = False
    """Export spans and metrics of this daemon; needs `pip install 'pgrouse[otel]'`."""
    flush_timeout: Annotated[Duration, between(0 * S, 60 * S)] = 3 * S
    """How long the daemon waits at shutdown to export the rest."""


class Config(Section):
    """The whole configuration. `load` creates it."""

    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    handlers: HandlersSettings = HandlersSettings()
    topics: dict[PolicyName, TopicSettings] = {}
    schedules: dict[ScheduleName, ScheduleSettings] = {}
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    otel: OtelSettings = OtelSettings()
    web: WebSettings = WebSettings()
    alerts: AlertsSettings = AlertsSettings()
    crypto: CryptoSettings = CryptoSettings()
    _path: Path | None = PrivateAttr(default=None)
    _source: ConfigSource = PrivateAttr(default_factory=ConfigSource)
    _has_code: bool = PrivateAttr(default=True)

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of the interpreter that run the command line with this configuration."""
        return self._source.host.command if self._source.host else COMMAND

    @property
    def path(self) -> Path | None:
        """The file that was read, absolute; None if there was none."""
        return self._path

    @property
    def has_code(self) -> bool:
        """Whether it contains the declarations of its modules, if it names any."""
        return self._has_code

    @property
    def topics_with_handler(self) -> dict[str, TopicSettings]:
        """The topics that a daemon with this configuration handles: those with a handler."""
        return {topic: chosen for topic, chosen in self.topics.items() if chosen.handler}

    @property
    def policies(self) -> dict[str, DesiredPolicy]:
        """The policies that the configuration sets, by topic."""
        return {topic: wanted for topic, chosen in self.topics.items() if (wanted := chosen.desired_policy)}

    def origin(self, *key: str | int) -> Origin:
        """Return where a value was set, like `pgrouse.toml:7`: `origin("topics", "orders.created", "handler")`."""
        return self._source.exact_origin(key)

    def declared_by(self, schedule: str) -> str:
        """Return the name that the database records for the application that declares a schedule."""
        if self.database.application is not None:
            return f"application {self.database.application}"
        module = self._source.modules.get(schedule)
        return self.own_name if module is None else f"module {module}"

    @property
    def own_name(self) -> str:
        """What the database records for schedules that no module declares: the file, or the settings of a program."""
        host = self._source.host
        return host.name if host is not None and self.path is None else f"file {self.path}"

    def over(self, code: ConfigSource) -> Config:
        """Return this configuration merged with the declarations in code; this one overrides them.

        Raises:
            ConfigProblems: all problems, with file, line and key.
        """
        return _validated(self._source.over(code), self.path)

    def problem(self, key: Key, text: object) -> ConfigProblem:
        """Return a problem of a key, with file and line."""
        return ConfigProblem(self.origin(*key), show_key(key), f"{show_key(key)}: {text}")

    def problems(self, error: ValidationError, table: Key, known: list[str]) -> list[ConfigProblem]:
        """Return the problems of a table that is read later, with file and line. known: the keys that it may have."""
        found = [{**each, "loc": (*table, *each["loc"])} for each in error.errors(include_url=False)]
        return [to_problem(cast("ErrorDetails", each), self._source, known) for each in found]


def load(
    path: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    host: HostProgram | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: the file; None means $PGROUSE_CONFIG, else `pgrouse.toml` in the working directory if there is one.
        environ: environment variables: `PGROUSE_SECTION__KEY`, `PGROUSE_DSN`, `DATABASE_URL`, and those that the file
            names.
        overrides: values of flags by section and key; None as a value means that the flag was not given.
        host: the program that runs this.

    Raises:
        ConfigProblems: all problems, with file, line and key.
    """
    return _load(find(path, environ), environ, overrides or {}, "--", host)


def load_for_worker(path: Path | None, overrides: Mapping[str, Mapping[str, Any]]) -> Config:
    """Read the configuration of a Worker in an application, with or without a file.

    overrides: the values from the code.

    Raises:
        ConfigProblems: all problems, with file, line and key.
    """
    return _load(path, os.environ, overrides, "argument ")


def _load(
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, Mapping[str, Any]],
    prefix: str,
    host: HostProgram | None = None,
) -> Config:
    source = read_file(path, environ) if path else ConfigSource()
    if host is not None:
        source = _over_host(source, host)
    _add_environment(source, environ)
    _add_overrides(source, overrides, prefix)
    return _validated(source, path, before_code=bool(_table(source.values, "handlers").get("modules")))


def _validated(source: ConfigSource, path: Path | None, *, before_code: bool = False) -> Config:
    """Return the configuration. before_code: do not report a key as missing if code may still add it."""
    context = {
        "folder": path.absolute().parent if path else Path.cwd(),
        "before_code": before_code,
        "time_zone": _time_zone_of_host(source),
    }
    try:
        config = Config.model_validate(source.values, context=context)
    except ValidationError as error:
        problems = [to_problem(each, source, _known(each["loc"][:-1])) for each in error.errors(include_url=False)]
        raise ConfigProblems(_in_order(source.problems + problems)) from None
    if source.problems or (misplaced := list(_find_misplaced(config, source))):
        raise ConfigProblems(_in_order(source.problems or misplaced))
    placed = _placed(config, path, source)
    placed._has_code = not before_code  # noqa: SLF001 - its own
    return placed


def _time_zone_of_host(source: ConfigSource) -> str | None:
    """Return the time zone of schedules that name none; record where these have it from."""
    if source.host is None or source.host.time_zone is None:
        return None
    time_zone, origin = source.host.time_zone
    for name, schedule in _table(source.values, "schedules").items():
        if isinstance(schedule, dict) and "time_zone" not in schedule:
            source.origins["schedules", name, "time_zone"] = origin
    return time_zone


def _over_host(source: ConfigSource, host: HostProgram) -> ConfigSource:
    merged = source.over(host.source)
    merged.host = host
    permitted = _table(merged.values, "handlers").get("allowed_modules", [])
    if host.modules and isinstance(permitted, list):
        merged.put_value(("handlers", "allowed_modules"), [*permitted, *host.modules])
    return merged


def _find_misplaced(config: Config, source: ConfigSource) -> Iterator[ConfigProblem]:
    """Yield values that are valid by themselves, but not in their place."""
    for topic, chosen in config.topics.items():
        wrong: dict[Key, str] = {
            (setting,): text for setting, text in invalid_keywords(topic, chosen, TopicPolicy).items()
        }
        for channel, policy in chosen.channels.items():
            found = invalid_keywords(topic, policy, ChannelPolicy)
            wrong |= {("channels", channel, setting): text for setting, text in found.items()}
        if topic == DEFAULTS:
            has = [name for name in ("handler", "channels", "subscriptions") if getattr(chosen, name)]
            wrong |= {(name,): "is for a topic with a name: the defaults have policies only" for name in has}
        elif is_pattern(topic):
            has = [name for name in ("channels", "subscriptions") if getattr(chosen, name)]
            wrong |= {(name,): f"is for a topic with a name, and {topic} is a pattern" for name in has}
        for inner, text in wrong.items():
            key = ("topics", topic, *inner)
            yield ConfigProblem(source.origin(key), show_key(key), f"{show_key(key)}: {text}")


def find(path: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file to read, None if there is none.

    It is the given one, else $PGROUSE_CONFIG, else `pgrouse.toml` in the working directory.
    """
    if path is None and environ.get("PGROUSE_CONFIG"):
        path = Path(environ["PGROUSE_CONFIG"])
    return path or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)


def _add_environment(source: ConfigSource, environ: Mapping[str, str]) -> None:
    if dsn := environ.get("PGROUSE_DSN"):
        source.put(("database", "dsn"), dsn, Origin("environment", variable="PGROUSE_DSN"))
    for key, text, origin in read_environment(environ):
        source.put(key, _from_text(text, _annotation(key)), origin)
    # DATABASE_URL is not only for pgrouse: it must not override the database that the file names.
    if (url := environ.get("DATABASE_URL")) and not _table(source.values, "database").get("dsn"):
        source.put(("database", "dsn"), url, Origin("environment", variable="DATABASE_URL"))


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _add_overrides(source: ConfigSource, overrides: Mapping[str, Mapping[str, Any]], prefix: str) -> None:
    for section, values in overrides.items():
        for name, value in values.items():
            if value is not None:
                source.put((section, name), value, Origin("flag", variable=f"{prefix}{_shown_name(name, prefix)}"))


def _shown_name(name: str, prefix: str) -> str:
    if prefix != "--":
        return name
    return "module" if name == "modules" else name.replace("_", "-")


def _from_text(text: str, annotation: Any) -> Any:
    """Convert the text of an environment variable to the type of its key.

    Text that cannot be converted stays text, and the check reports it.
    """
    kinds = {get_origin(kind) or kind for kind in _alternatives(annotation)}
    if int in kinds and text.strip().lstrip("-").isdecimal():
        return int(text)
    if bool in kinds and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    if list in kinds:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return tuple(get_args(each)[0] if get_origin(each) is Annotated else each for each in kinds)


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _annotation(key: Key) -> Any:
    """Return the type of a key, None if there is no such key."""
    found: Any = Config
    for name in key:
        if isinstance(found, type) and issubclass(found, BaseModel):
            found = found.model_fields[str(name)].annotation if name in found.model_fields else None
            found = next(filter(_is_table, _alternatives(found)), found)
        elif get_origin(found) is dict:
            found = get_args(found)[1]
        elif get_origin(found) is list:
            found = get_args(found)[0]
        else:
            return None
    return found


def _known(key: Key) -> list[str]:
    """Return the keys that a table knows."""
    model = _annotation(key)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _in_order(problems: list[ConfigProblem]) -> list[ConfigProblem]:
    return sorted(problems, key=lambda p: (str(p.origin.file or ""), p.origin.line or 0, str(p.origin), p.key))


def _placed(config: Config, path: Path | None, source: ConfigSource) -> Config:
    """Return the configuration with absolute paths and with its origin."""
    folder = path.absolute().parent if path else Path.cwd()
    handlers = config.handlers.model_copy(
        update={"import_path": [folder / each for each in config.handlers.import_path]}
    )
    placed = config.model_copy(update={"handlers": handlers})
    placed._path = path.absolute() if path else None  # noqa: SLF001 - its own
    placed._source = source  # noqa: SLF001
    return placed


def flat_items(config: Config) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every key and its value; durations as text, nothing redacted."""
    yield from _flat_items((), config.model_dump(mode="json"))


def _flat_items(key: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        yield key, value
        return
    for name, inner in value.items():
        yield from _flat_items((*key, name), inner)
