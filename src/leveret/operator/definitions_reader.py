"""Definitions in RabbitMQ's JSON, read into a plan. Each entry is checked, and tried in a temporary broker.

Files of every release are accepted: a field that a release did not write gets the default of that release, and `[]`
counts as an empty object, because Erlang prints one like that.

Source: behaviour page 5.3, 5.5.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ..configured.configured import text_of
from ..configured.configured_users import DEFAULT_GUEST
from ..engine import (
    EXCHANGE_TYPES,
    NO_PASSWORD,
    PREDECLARED,
    QUEUE_TYPES,
    Broker,
    DirectExchange,
    EngineError,
    FieldTable,
    Grant,
    ManualClock,
    NotFound,
    Permissions,
    TopicPermission,
    User,
    VirtualHost,
    VirtualHostLimits,
    read_password_hash,
    table_of_json,
)
from ..expressions.patterns.pattern_syntax import PatternFault
from ..settings import Policy, read_policy
from ..settings.values import shown
from .access import tags_of, words_of
from .command_error import CommandError
from .parameters import ABOUT, CLUSTER_NAME, KEPT_MAX, about_vhost, parameter_count
from .steps import Steps

FAULTS_MAX = 50
#: Maximum objects of a document that one step checks or declares (2 to 4 ms).
OBJECTS_A_STEP = 25
#: Maximum effort of a step, for long names or many policies.
EFFORT_A_STEP = 2_000
#: Effort per character of a pattern.
PATTERN_EFFORT = 5
LIMITS_COMPONENT, OPERATOR_POLICY_COMPONENT = "vhost-limits", "operator_policy"
_PREDECLARED = {name for name, _, _ in PREDECLARED}


class DefinitionsFault(Exception):
    """Definitions are invalid; nothing was changed. `faults`: one line for each fault, beginning with its position."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults[:FAULTS_MAX]))
        self.faults = faults


@dataclass(slots=True, frozen=True)
class Declaration:
    """An exchange, a queue or a binding of the document. `title`: its kind and its name, for people."""

    kind: str
    title: str
    vhost: str
    declare: Callable[[VirtualHost], object]


@dataclass(slots=True)
class Plan:
    """The checked contents of a document, without entries that have a fault.

    `faults`: a line for each wrong entry. `remarks`: lines about entries without a mistake: why one is left out, or
    that an argument is unknown. Each line begins with the entry's position. `skipped`: the positions of all entries
    that are not imported. `users`: without their permissions, which are in `grants` and `topics`.
    """

    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)

    users: dict[str, User] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)  # plain, by user, if there is no hash
    vhosts: dict[str, None] = field(default_factory=dict)
    limits: dict[str, VirtualHostLimits] = field(default_factory=dict)
    default_types: dict[str, str] = field(default_factory=dict)  # of queues, by virtual host
    grants: dict[str, dict[str, Grant]] = field(default_factory=dict)  # by user and virtual host
    topics: dict[str, dict[str, dict[str, TopicPermission]]] = field(default_factory=dict)  # the same, by exchange
    objects: list[Declaration] = field(default_factory=list)  # exchanges, then queues, then bindings
    policies: list[Policy] = field(default_factory=list)
    parameters: dict[tuple[str, str, str], Any] = field(default_factory=dict)  # as `Broker.parameters`


class DefinitionsReader:
    """Reads a document into a plan; `trial` is a temporary broker, in which each entry is tried."""

    def __init__(self, broker: Broker, document: object) -> None:
        self.broker = broker
        self.document = document
        self._position = ""
        self._plan = Plan()
        self._parameter_count = parameter_count(broker)
        self.trial = Broker(ManualClock(), settings=broker.context.settings, options=broker.context.options)

    def plan(self) -> Steps:
        """Make the plan, in steps. Returns a Plan. Raises: DefinitionsFault: the value is not a document."""
        if not isinstance(self.document, dict):
            raise DefinitionsFault(["definitions: expected an object"])
        readers: dict[str, Callable[[dict[str, Any]], None]] = {
            "vhosts": self._vhost,
            "users": self._user,
            "permissions": self._permission,
            "topic_permissions": self._topic_permission,
            "parameters": self._parameter,
            "global_parameters": self._global_parameter,
            "policies": self._policy,
            "exchanges": self._exchange,
            "queues": self._queue,
            "bindings": self._binding,
        }
        until = self.trial.context.turn.effort + EFFORT_A_STEP
        for section, read in readers.items():
            entries = self.document.get(section, [])
            if not isinstance(entries, list):
                self._plan.faults.append(f"{section}: expected a list")
                continue
            for index, entry in enumerate(entries):
                if (index % OBJECTS_A_STEP == 0 and index) or self.trial.context.turn.effort >= until:
                    yield
                    until = self.trial.context.turn.effort + EFFORT_A_STEP
                self._position = f"{section}[{index}]"
                try:
                    if not isinstance(entry, dict):
                        raise ValueError("expected an object")
                    read(entry)
                except (ValueError, PatternFault, CommandError) as error:
                    self._refuse("; ".join(str(error).splitlines()))
                except EngineError as error:
                    self._refuse(text_of(error))
        return self._plan

    def remark_arguments(self, what: str, owner: str, vhost: str, names: dict[str, str]) -> None:
        """Add a remark for each unknown argument, as `on_unknown_arguments` of the temporary broker."""
        for name, like in names.items():
            hint = f", did you mean {shown(like)}?" if like else ""
            self._plan.remarks.append(f"{self._position}: {shown(name)}: no {what} has this argument{hint}")

    def _refuse(self, why: str) -> None:
        self._plan.faults.append(f"{self._position}: {why}")
        self._plan.skipped.add(self._position)

    def _leave_out(self, why: str) -> None:
        self._plan.remarks.append(f"{self._position}: left out: {why}")
        self._plan.skipped.add(self._position)

    # -- sections ---------------------------------------------------------------------------------------------------

    def _vhost(self, entry: dict[str, Any]) -> None:
        name, metadata = _text(entry, "name"), _object(entry, "metadata")
        limits = _vhost_limits(_object(entry, "limits"))
        given = {key: entry.get(key) or metadata.get(key) for key in ("description", "tags")}
        given = {key: value for key, value in given.items() if value is not None}
        description, tags = _about(given)
        type_name = entry.get("default_queue_type")
        if type_name is None:
            type_name = metadata.get("default_queue_type")
        # RabbitMQ writes the type or the name of its module.
        kind = next((one for one in QUEUE_TYPES if type_name in (one, f"rabbit_{one}_queue")), None)
        if kind is None and type_name not in (None, "", "undefined"):
            expected = ", ".join(QUEUE_TYPES)
            raise ValueError(f"default_queue_type: expected one of {expected}, not {shown(type_name)}")
        about = {"description": description, "tags": tags}
        if given and about != about_vhost(self.broker, name):
            self._keep((name, "", ABOUT), about)
        if kind is not None:
            self._plan.default_types[name] = kind
        self._plan.vhosts[name] = None
        if entry.get("limits"):
            self._plan.limits[name] = limits

    def _user(self, entry: dict[str, Any]) -> None:
        name = _text(entry, "name")
        password, hashed, algorithm = (
            "" if entry.get(key) is None else _text(entry, key, may_be_empty=True)
            for key in ("password", "password_hash", "hashing_algorithm")
        )
        if password and hashed:
            raise ValueError("password and password_hash: expected one of them")
        try:
            stored = NO_PASSWORD if password else read_password_hash(hashed, algorithm or None)
        except ValueError as error:
            raise ValueError(f"password_hash: expected {error}") from None
        limits = _object(entry, "limits")
        _check_keys("limits", limits, "max-connections", "max-channels")
        tags = entry.get("tags", [])
        if "tags" not in entry and entry.get("administrator") in (True, "true"):  # of releases before 3.0
            tags = ["administrator"]
        user = User(
            name,
            stored,
            tags_of(tags),
            loopback_only=name == DEFAULT_GUEST.name,
            permissions=MappingProxyType({}),
            max_connections=_limit(limits, "max-connections"),
            max_channels=_limit(limits, "max-channels"),
        )
        before = self.broker.users.find(name)
        if before is not None and entry.get("limits") is None:  # releases before 3.8 write none
            user = replace(user, max_connections=before.max_connections, max_channels=before.max_channels)
        self._plan.users[name] = user
        if password:
            self._plan.passwords[name] = password
        else:
            self._plan.passwords.pop(name, None)

    def _permission(self, entry: dict[str, Any]) -> None:
        user, vhost = self._user_and_vhost(entry)
        configure, write, read = (_text(entry, name, may_be_empty=True) for name in ("configure", "write", "read"))
        grant = Grant(configure, write, read)
        self._charge_patterns(configure, write, read)
        Permissions(grant, user=user, vhost=vhost).check()
        self._plan.grants.setdefault(user, {})[vhost] = grant

    def _topic_permission(self, entry: dict[str, Any]) -> None:
        user, vhost = self._user_and_vhost(entry)
        topic = TopicPermission(_text(entry, "write", may_be_empty=True), _text(entry, "read", may_be_empty=True))
        topics = {_text(entry, "exchange", may_be_empty=True): topic}
        self._charge_patterns(topic.write, topic.read)
        Permissions(Grant(topics=topics), user=user, vhost=vhost).check()
        self._plan.topics.setdefault(user, {}).setdefault(vhost, {}).update(topics)

    def _parameter(self, entry: dict[str, Any]) -> None:
        vhost, component, name = self._known_vhost(entry), _text(entry, "component"), _text(entry, "name")
        if component not in (LIMITS_COMPONENT, OPERATOR_POLICY_COMPONENT):
            self._keep((vhost, component, name), entry.get("value"))
            return
        if entry.get("value") is None:
            raise ValueError("value: expected an object")
        value = _object(entry, "value")
        if component == OPERATOR_POLICY_COMPONENT:
            _check_keys("value", value, "pattern", "apply-to", "definition", "priority")
            self._policy({**value, "vhost": vhost, "name": name}, is_operator=True)
        elif name != "limits":
            raise ValueError(f"name: expected limits, not {shown(name)}")
        else:
            _check_keys("value", value, "max-connections", "max-queues")
            self._plan.limits[vhost] = _vhost_limits(value)

    def _global_parameter(self, entry: dict[str, Any]) -> None:
        name = _text(entry, "name")
        if name == CLUSTER_NAME and (not isinstance(entry.get("value"), str) or not entry["value"]):
            raise ValueError("value: expected a name")
        self._keep(("", "", name), entry.get("value"))

    def _charge_patterns(self, *patterns: object) -> None:
        """Count the cost of parsing these patterns."""
        self.trial.context.turn.effort += PATTERN_EFFORT * sum(len(one) for one in patterns if isinstance(one, str))

    def _policy(self, entry: dict[str, Any], *, is_operator: bool = False) -> None:
        self._charge_patterns(entry.get("pattern"))
        name, vhost, definition = _text(entry, "name"), self._known_vhost(entry), _object(entry, "definition")
        now = self.broker.context.policies.find(vhost, name, is_operator=is_operator)
        is_stored = now is not None and now.definition == definition
        value = {**entry, "definition": definition}
        self._plan.policies.append(read_policy(name, vhost, value, is_operator=is_operator, is_stored=is_stored))

    def _keep(self, identity: tuple[str, str, str], value: object) -> None:
        parameters = self._plan.parameters
        if identity not in parameters and identity not in self.broker.parameters:
            if self._parameter_count >= KEPT_MAX:
                raise ValueError(f"no more than {KEPT_MAX} parameters are kept")
            self._parameter_count += 1
        parameters[identity] = value

    def _exchange(self, entry: dict[str, Any]) -> None:
        vhost, name = self._known_vhost(entry), _text(entry, "name", may_be_empty=True)
        if name in _PREDECLARED:
            self._plan.skipped.add(self._position)
            return
        if name.startswith("amq."):
            self._leave_out(f"exchange {shown(name)}: names with amq. are the broker's own")
            return
        kind, arguments = _text(entry, "type"), _arguments(entry)
        flags: dict[str, Any] = {key: _flag(entry, key) for key in ("durable", "auto_delete", "internal")}
        title = f"exchange {shown(name)}"
        if name in self.trial.virtual_hosts.create(vhost).exchanges:
            self._leave_out(f"{title} is here twice: the first one is declared")
            return
        self._declare(
            Declaration(
                "exchange", title, vhost, lambda host: host.exchanges.declare(name, kind, arguments=arguments, **flags)
            )
        )

    def _queue(self, entry: dict[str, Any]) -> None:
        vhost, name = self._known_vhost(entry), _text(entry, "name")
        flags: dict[str, Any] = {key: _flag(entry, key) for key in ("durable", "auto_delete")}
        arguments = _arguments(entry)
        title = f"queue {shown(name)}"
        if name in self.trial.virtual_hosts.create(vhost).queues:
            self._leave_out(f"{title} is here twice: the first one is declared")
            return

        def declare(host: VirtualHost) -> object:
            is_generated = name.startswith("amq.")  # it had a generated name when it was exported
            return host.queues.declare(name, client=None, arguments=arguments, server_named=is_generated, **flags)

        self._declare(Declaration("queue", title, vhost, declare))

    def _declare(self, one: Declaration) -> None:
        one.declare(self.trial.virtual_hosts.create(one.vhost))
        self._plan.objects.append(one)

    def _binding(self, entry: dict[str, Any]) -> None:
        vhost, source = self._known_vhost(entry), _text(entry, "source", may_be_empty=True)
        kind = entry.get("destination_type", "queue")
        if kind not in ("queue", "exchange"):
            raise ValueError(f"destination_type: expected queue or exchange, not {shown(kind)}")
        name, key = _text(entry, "destination"), _text(entry, "routing_key", may_be_empty=True)
        arguments = _arguments(entry)
        if not source:  # every queue is bound to the default exchange
            self._plan.skipped.add(self._position)
            return
        self._copy_names(vhost, {source} if kind == "queue" else {source, name}, {name} if kind == "queue" else set())
        try:
            self._declare(
                Declaration(
                    "binding",
                    f"binding of {kind} {shown(name)} to exchange {shown(source)}",
                    vhost,
                    lambda host: host.bindings.add(kind, name, source, key, arguments),
                )
            )
        except NotFound as error:  # exports have the bindings of exclusive queues, but not the queues
            self._leave_out(text_of(error))

    def _copy_names(self, vhost: str, exchanges: set[str], queues: set[str]) -> None:
        """Make substitutes in the temporary broker for objects that exist in the broker and not in the document."""
        trial, host = self.trial.virtual_hosts.create(vhost), self.broker.virtual_hosts.get(vhost)
        if host is None:
            return
        for name in exchanges:
            if name in host.exchanges and name not in trial.exchanges:
                trial.exchanges[name] = EXCHANGE_TYPES.get(host.exchanges[name].type, DirectExchange)(name)
        for name in queues:
            if name in host.queues and name not in trial.queues:
                trial.queues.create(name, is_auto_created=False)

    # -- references -------------------------------------------------------------------------------------------------

    def _user_and_vhost(self, entry: dict[str, Any]) -> tuple[str, str]:
        user = _text(entry, "user")
        if user not in self._plan.users and self.broker.users.find(user) is None:
            raise ValueError(f"no user {shown(user)}")
        return user, self._known_vhost(entry)

    def _known_vhost(self, entry: dict[str, Any]) -> str:
        if "vhost" not in entry:
            raise ValueError(
                "vhost: is missing, as in the export of one virtual host: import it with "
                "`leveret ctl definitions import FILE vhost=NAME`, or POST it to /api/definitions/NAME"
            )
        name = _text(entry, "vhost")
        if name not in self._plan.vhosts and name not in self.broker.virtual_hosts:
            raise ValueError(f"no virtual host {shown(name)}")
        return name


def _text(entry: dict[str, Any], key: str, *, may_be_empty: bool = False) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ValueError(f"{key}: expected text")
    size_max = 255 if key not in ("configure", "write", "read") else 1024
    if len(value.encode()) > size_max:
        raise ValueError(f"{key}: longer than {size_max} octets")
    return value


def _flag(entry: dict[str, Any], key: str) -> bool:
    value = entry.get(key)
    if value is None:
        return key == "durable"  # as in a declaration over the HTTP API
    if not isinstance(value, bool):
        raise ValueError(f"{key}: expected true or false")
    return value


def _object(entry: dict[str, Any], key: str) -> dict[str, Any]:
    """The object of a key. A missing one, null and `[]` are empty; `[["max-queues", 5]]` is RabbitMQ 3.10's form."""
    value = entry.get(key)
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value):
        names, values = zip(*value) if value else ((), ())
        if all(isinstance(name, str) for name in names):
            return dict(zip(names, values))
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object")
    return value


def _check_keys(what: str, value: dict[str, Any], *known: str) -> None:
    """Raises: ValueError, if the object has a key that is not known."""
    for key in value.keys() - {*known}:
        raise ValueError(f"{what}: unknown key {shown(key)}, expected {', '.join(known)}")


def _arguments(entry: dict[str, Any]) -> FieldTable:
    arguments = _object(entry, "arguments")
    try:
        return table_of_json(arguments)
    except ValueError as error:
        raise ValueError(f"arguments: expected {error}") from None


def _vhost_limits(value: dict[str, Any]) -> VirtualHostLimits:
    return VirtualHostLimits(_limit(value, "max-connections"), _limit(value, "max-queues"))


def _limit(value: dict[str, Any], key: str) -> int | None:
    limit = value.get(key, -1)
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ValueError(f"{key}: expected a number")
    return limit if limit >= 0 else None


def _about(metadata: dict[str, Any]) -> tuple[str, list[str]]:
    """Description and tags of a virtual host."""
    description, tags = metadata.get("description", ""), metadata.get("tags", [])
    if not isinstance(description, str):
        raise ValueError("description: expected text")
    return description, words_of(tags)
