"""The commands for a running broker, with their actions and arguments, as data.

`control.ControlTable` runs them; `leveret ctl` takes its arguments, help and refusals from here. A test compares both.
Source: ruling 24; interfaces page.
"""

from collections.abc import Iterable
from typing import Any

from ..settings.faults import nearest
from ..settings.values import shown
from .command_arguments import (
    ANY_PATTERN,
    DOCUMENT,
    FLAG,
    JSON,
    LIMIT,
    NAME,
    NUMBER,
    PATTERN,
    QUEUE_TYPE,
    RING_SIZE,
    TEXT,
    WORD,
    WORDS,
    Argument,
    Command,
)
from .command_error import CommandError

#: The reason for the client when the operator gives none: the text of RabbitMQ's management plugin.
CLOSED_BY_HAND = "Closed via management plugin"
#: The reason for blocked clients when the operator gives none: the text of RabbitMQ's memory alarm.
ALARM_BY_HAND = "low on memory"


def _vhost(text: str = 'its virtual host (default "/")') -> Argument:
    return Argument("vhost", NAME, text)


_IN_VHOST = _vhost()
_OF_VHOST = _vhost("only in this virtual host")
_QUEUE = Argument("queue", NAME, "the queue's name", is_required=True, is_first=True)
_AS_USER = Argument("as-user", NAME, "with the permissions of this user (default: all)")
_EXCHANGE = Argument("exchange", NAME, "the exchange's name", is_required=True, is_first=True)
_ARGUMENTS = Argument("arguments", JSON, 'like {"x-max-length": 10}')
_BOUND = (
    Argument("source", NAME, "the exchange that messages come from", is_required=True, is_first=True),
    Argument("destination", NAME, "the queue or exchange that they go to", is_required=True, is_first=True),
    Argument("routing-key", TEXT, "(default: empty)", is_first=True),
    Argument("arguments", JSON, "of a headers exchange"),
    Argument("destination-type", WORD, "queue (the default) or exchange"),
    _IN_VHOST,
    _AS_USER,
)
_ID = Argument("id", NUMBER, "the message's id in `scheduled list`", is_required=True, is_first=True)
_JOB = Argument("id", NUMBER, "the job's id in `jobs list`", is_required=True, is_first=True)
#: Which messages are meant: those that meet all that is given.
_FILTER = (
    Argument("filter", TEXT, "what a content filter takes: docs/expressions.md"),
    Argument("header", JSON, 'like {"tenant": "acme"}: with these values'),
    Argument("routing-key", TEXT, "published with exactly this one"),
    Argument("text", TEXT, "with this in the body"),
    Argument("cause", TEXT, "dead letters: of this reason, as rejected or expired"),
    Argument("origin", TEXT, "dead letters: died in this queue"),
)
#: And those that a job is about.
_CHOICE = (
    *_FILTER,
    Argument("positions", JSON, "a list of numbers, as `browse` shows them"),
    Argument("limit", NUMBER, "the first so many"),
)
_PACE = (
    Argument("rate", NUMBER, "messages a second (default: as fast as it goes)"),
    Argument("dry-run", FLAG, "true: only tell what would be done"),
    _IN_VHOST,
    _AS_USER,
)
_USER = Argument("user", NAME, "the user's name", is_required=True, is_first=True)
_OF_USER = Argument("user", NAME, "only of this user")
_PASSWORD = (
    Argument("password", TEXT, "in clear text; without it, it is read from the terminal or standard input"),
    Argument("password-hash", TEXT, "or salt and hash in base64, as in RabbitMQ's definitions"),
    Argument("hashing-algorithm", TEXT, "of the hash (default rabbit_password_hashing_sha256)"),
)


def _named(text: str) -> Argument:
    return Argument("name", NAME, text, is_required=True, is_first=True)


def _pattern(name: str, text: str) -> Argument:
    return Argument(name, PATTERN, text, is_required=True, is_first=True)


_PARAMETER = (
    Argument("component", NAME, "the plug-in's name for itself", is_required=True, is_first=True),
    _named("of the parameter"),
)
_VALUE = Argument("value", JSON, "any JSON", is_required=True, is_first=True)


def _policies(command: str, title: str) -> tuple[Command, ...]:
    return (
        Command(f"{command} list", f"{title}, the highest priority first", (_OF_VHOST,)),
        Command(
            f"{command} set",
            "add one, or replace the one of that name",
            (
                _named("of the policy"),
                Argument("pattern", ANY_PATTERN, "of the names it applies to", is_required=True, is_first=True),
                Argument("definition", JSON, 'like {"max-length": 10}', is_required=True, is_first=True),
                Argument("apply-to", TEXT, "all (the default), queues, exchanges, classic_queues, ..."),
                Argument("priority", JSON, "of those that match the highest wins (default 0)"),
                _IN_VHOST,
            ),
        ),
        Command(f"{command} clear", "delete one", (_named("of the policy"), _IN_VHOST)),
    )


_COMMANDS = (
    Command("status", "what the broker has now, and counters since it started", reads=True),
    Command("queues", "all queues with their messages", (_OF_VHOST,)),
    Command(
        "explain",
        "every setting of a queue or address, and which rule gave it",
        (_named("of the queue or address"), _OF_VHOST),
    ),
    Command(
        "diff",
        "what other configuration files would change; `leveret diff --live` sends them",
        (
            Argument("files", JSON, "[[NAME, TEXT], ...]", is_required=True, is_first=True),
            Argument("included", JSON, "{NAME: TEXT} of the files that they include"),
        ),
    ),
    Command(
        "draft",
        "what settings and policies that are not in force would give, and change for the queues that are there",
        (
            Argument("name", NAME, "a queue or address, to have each of its settings told", is_first=True),
            Argument("files", JSON, "[[NAME, TEXT], ...]: configuration files in TOML or XML"),
            Argument("included", JSON, "{NAME: TEXT} of the files that they include"),
            Argument("adds", FLAG, "true: to what is in force; false: instead of it (default false)"),
            Argument("policies", JSON, "a list, as RabbitMQ's API shows them; operator: true for operator policies"),
            _OF_VHOST,
        ),
    ),
    Command(
        "rules",
        "address-settings and policies as one list, in the order in which they win",
        (Argument("name", NAME, "those of this queue or address, and what each gives", is_first=True), _OF_VHOST),
    ),
    Command(
        "ring",
        "resize a ring queue",
        (
            _QUEUE,
            Argument("size", RING_SIZE, "messages; -1: no ring", is_required=True, is_first=True),
            _IN_VHOST,
        ),
    ),
    Command(
        "leases",
        "who has which message of a leased queue, and until when",
        (
            _QUEUE,
            Argument("after", NUMBER, "without the first so many"),
            Argument("count", NUMBER, "at most so many (default and at most 1000)"),
            _IN_VHOST,
        ),
    ),
    Command(
        "lease renew",
        "leases of a leased queue begin again, whoever has them",
        (
            _QUEUE,
            Argument("bookmark", TEXT, "of the messages; commas between several", is_required=True, is_first=True),
            _IN_VHOST,
        ),
    ),
    Command(
        "move",
        "messages of a queue to another one, or to an exchange: a job",
        (
            _QUEUE,
            Argument("to-queue", NAME, "straight into it; or"),
            Argument("to-exchange", TEXT, "by its bindings"),
            Argument("to-key", TEXT, "the routing key there (default: each message's own)"),
            *_CHOICE,
            *_PACE,
        ),
    ),
    Command(
        "replay",
        "dead letters to where they came from: a job",
        (
            _QUEUE,
            Argument("to", WORD, "exchange (the default), with the routing key; or queue: the one each died in"),
            Argument("strip", FLAG, "true: without the headers that tell of deaths (default false)"),
            *_CHOICE,
            *_PACE,
        ),
    ),
    Command(
        "discard",
        "throw messages of a queue away: a job; of a leased queue at once, also what others hold",
        (
            _QUEUE,
            *_CHOICE,
            *_PACE,
            Argument("bookmark", TEXT, "of a leased queue: those with these bookmarks, separated by commas"),
            Argument("option", TEXT, "of a leased queue: cancel: break the leases; expire: as dead letters"),
        ),
    ),
    Command("pause", "consumers of a queue get nothing, until `resume` or a restart", (_QUEUE, _IN_VHOST)),
    Command("resume", "they get what has come meanwhile", (_QUEUE, _IN_VHOST)),
    Command("dead-letters", "queues that dead letters go to; what is there, by cause and origin", (_OF_VHOST,)),
    Command("jobs list", "moves, replays and discards: those under way, and the last ones that ended"),
    Command("jobs show", "one of them", (_JOB,)),
    Command("jobs cancel", "end one; what it has moved stays moved", (_JOB, _AS_USER)),
    Command(
        "declare-queue",
        "a queue, or check that the one that is there is the same",
        (
            _QUEUE,
            Argument("durable", FLAG, "true: it outlives a restart (default false)"),
            Argument("auto-delete", FLAG, "true: it goes with its last consumer (default false)"),
            _ARGUMENTS,
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "delete-queue",
        "with its messages",
        (
            _QUEUE,
            Argument("if-empty", FLAG, "true: only if nothing is ready in it"),
            Argument("if-unused", FLAG, "true: only if it has no consumers"),
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command("purge", "delete the ready messages of a queue", (_QUEUE, _IN_VHOST, _AS_USER)),
    Command(
        "get",
        "take messages out of a queue, or have a look at them",
        (
            _QUEUE,
            Argument("count", NUMBER, "at most so many (default 1)"),
            Argument(
                "ackmode", WORD, "ack_requeue_true (the default), ack_requeue_false, reject_requeue_true or .._false"
            ),
            Argument("encoding", WORD, "auto (the default): text where it is UTF-8; or base64"),
            Argument("truncate", NUMBER, "bodies after so many octets"),
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "browse",
        "look at the messages of a queue and change nothing",
        (
            _QUEUE,
            Argument("count", NUMBER, "at most so many (default 50), and no more than management-browse-page-size"),
            Argument("after", NUMBER, "those behind this position (default 0: from the head)"),
            Argument("state", WORD, "ready (the default), unacked or scheduled"),
            *_FILTER,
            Argument("encoding", WORD, "auto (the default): text where it is UTF-8; or base64"),
            Argument("truncate", NUMBER, "bodies after so many octets"),
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "search",
        "where a message is: in all queues, ready, out or scheduled, and in the events that are kept",
        (
            Argument("message-id", TEXT, "the property of that name"),
            Argument("correlation-id", TEXT, "the property of that name"),
            Argument("id", NUMBER, "the broker's own id, as `browse` and `events` show it"),
            *_FILTER,
            Argument("queue", NAME, "only in this queue"),
            Argument("journal", FLAG, "true: what the journal's newest segments tell, too (default false)"),
            Argument("count", NUMBER, "at most so many (default 50, at most 200)"),
            _OF_VHOST,
            _AS_USER,
        ),
    ),
    Command("exchanges", "all exchanges", (_OF_VHOST,)),
    Command(
        "declare-exchange",
        "an exchange, or check that the one that is there is the same",
        (
            _EXCHANGE,
            Argument("type", NAME, "direct (the default), fanout, topic, headers, ...", is_first=True),
            Argument("durable", FLAG, "true: it outlives a restart (default false)"),
            Argument("auto-delete", FLAG, "true: it goes with its last binding (default false)"),
            Argument("internal", FLAG, "true: clients cannot publish to it (default false)"),
            _ARGUMENTS,
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "delete-exchange",
        "with its bindings",
        (
            _EXCHANGE,
            Argument("if-unused", FLAG, "true: only if nothing is bound to it"),
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "publish",
        "one message; tells whether a queue got it",
        (
            Argument("exchange", TEXT, "its name; empty: the default exchange", is_required=True, is_first=True),
            Argument("routing-key", TEXT, "of the message", is_required=True, is_first=True),
            Argument("payload", TEXT, "its body", is_required=True, is_first=True),
            Argument("payload-encoding", WORD, "string (the default) or base64"),
            Argument("properties", JSON, 'like {"delivery_mode": 2}'),
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "route",
        "where a message would go, and why not elsewhere; publishes nothing",
        (
            Argument("exchange", TEXT, "its name; empty: the default exchange", is_required=True, is_first=True),
            Argument("routing-key", TEXT, "(default: empty)", is_first=True),
            Argument("properties", JSON, 'like {"headers": {"x": 1}}'),
            Argument("payload", TEXT, "its body, where a filter looks at it"),
            Argument("payload-encoding", WORD, "string (the default) or base64"),
            _IN_VHOST,
            _AS_USER,
        ),
    ),
    Command(
        "events",
        "what happened lately; nothing is kept before the first look, nor a minute after the last",
        (
            Argument("count", NUMBER, "at most so many (default 100, at most 1000)"),
            Argument("since", NUMBER, "those with a higher number, oldest first; without it: the latest"),
            Argument("kind", WORD, "only of these kinds: enqueued,delivered,acked,..."),
            Argument("queue", NAME, "only of what happened to this queue (or exchange, connection, ...)"),
            Argument("message", NUMBER, "only of the message with this id"),
            _OF_VHOST,
        ),
    ),
    Command("bindings", "all bindings but those to the default exchange", (_OF_VHOST,)),
    Command("bind", "a queue or exchange to an exchange", _BOUND),
    Command("unbind", "end a binding", _BOUND),
    Command(
        "scheduled list",
        "messages that are scheduled, soonest first",
        (
            _QUEUE,
            Argument("after", NUMBER, "without the first so many"),
            Argument("count", NUMBER, "at most so many (default 1000, at most 5000)"),
            _IN_VHOST,
        ),
    ),
    Command("scheduled fire", "make one ready now", (_QUEUE, _ID, _IN_VHOST)),
    Command("scheduled cancel", "delete one", (_QUEUE, _ID, _IN_VHOST)),
    Command(
        "scheduled reschedule",
        "make one due later, or sooner",
        (
            _QUEUE,
            _ID,
            Argument("delay", NUMBER, "ms from now", is_required=True, is_first=True),
            _IN_VHOST,
        ),
    ),
    Command(
        "connections",
        "who is connected, since when, and in which state",
        (_OF_VHOST, _OF_USER),
    ),
    Command("channels", "all channels: unacknowledged deliveries, prefetch, mode", (_OF_VHOST,)),
    Command(
        "consumers",
        "all subscriptions: unacknowledged deliveries, and the age of the oldest",
        (_OF_VHOST, Argument("queue", NAME, "only of this queue")),
    ),
    Command(
        "close-connection",
        "close a connection: connection.close 320, CONNECTION_FORCED",
        (
            Argument(
                "name",
                NAME,
                "as `connections` shows it, or the name that clients gave: then all with that name",
                is_required=True,
                is_first=True,
            ),
            Argument("reason", TEXT, f"sent to the client (default: {CLOSED_BY_HAND})", is_first=True),
        ),
    ),
    Command(
        "block",
        "an alarm by hand: clients that publish are blocked, until `unblock` or a restart",
        (Argument("reason", NAME, f"sent to them (default: {ALARM_BY_HAND})", is_first=True),),
    ),
    Command("unblock", "end the alarm"),
    Command(
        "trace-on",
        "copy published and delivered messages to the exchange amq.rabbitmq.trace, until a restart",
        (Argument("vhost", NAME, 'of this virtual host (default "/")', is_first=True),),
    ),
    Command("trace-off", "stop the copies", (Argument("vhost", NAME, '(default "/")', is_first=True),)),
    Command(
        "log",
        "the last 200 lines of the log",
        (Argument("level", WORD, "info, warning, ...: this and graver ones (default debug: all)", is_first=True),),
    ),
    Command("reload", "read the configuration files again"),
    Command("users list", "all users"),
    Command(
        "users add",
        "a user, without permissions yet",
        (_named("of the user"), *_PASSWORD, Argument("tags", WORDS, "administrator, monitoring, ...")),
    ),
    Command("users delete", "delete a user, and close its connections", (_named("of the user"),)),
    Command("users passwd", "a new password, from the next login on", (_named("of the user"), *_PASSWORD)),
    Command(
        "users tags",
        "replace the tags of a user",
        (_named("of the user"), Argument("tags", WORDS, "without it: none", is_first=True)),
    ),
    Command(
        "users limits",
        "how much a user may open",
        (
            _named("of the user"),
            Argument("max-connections", LIMIT, "-1: no limit; without it: not changed"),
            Argument("max-channels", LIMIT, "-1: no limit; without it: not changed"),
        ),
    ),
    Command(
        "users replace",
        "a user with this password (or none) and these tags, new or as it was otherwise",
        (
            _named("of the user"),
            *_PASSWORD,
            Argument("tags", WORDS, "administrator, monitoring, ...", is_required=True),
        ),
    ),
    Command("permissions list", "who may do what", (_OF_USER, _OF_VHOST)),
    Command(
        "permissions set",
        "what a user may do in a virtual host",
        (
            _USER,
            _pattern("configure", "names of what it may declare and delete"),
            _pattern("write", "names of what it may publish to"),
            _pattern("read", "names of what it may consume from"),
            _IN_VHOST,
        ),
    ),
    Command("permissions clear", "allow nothing there any more", (_USER, _IN_VHOST)),
    Command("topic-permissions list", "who may use which routing keys", (_OF_USER, _OF_VHOST)),
    Command(
        "topic-permissions set",
        "routing keys that a user may use at a topic exchange",
        (
            _USER,
            Argument("exchange", NAME, "the topic exchange", is_required=True, is_first=True),
            _pattern("write", "to publish with"),
            _pattern("read", "to bind with"),
            _IN_VHOST,
        ),
    ),
    Command(
        "topic-permissions clear",
        "of one exchange, or of all",
        (_USER, Argument("exchange", NAME, "the topic exchange", is_first=True), _IN_VHOST),
    ),
    Command("vhosts list", "all virtual hosts"),
    Command(
        "vhosts add",
        "a virtual host; an existing one is not changed",
        (
            _named("of the virtual host"),
            Argument("default-queue-type", QUEUE_TYPE, "of queues declared without a type"),
        ),
    ),
    Command("vhosts about", "its description and tags", (_named("of the virtual host"),)),
    Command(
        "vhosts describe",
        "a text and words about a virtual host",
        (
            _named("of the virtual host"),
            Argument("description", TEXT, "without it: none"),
            Argument("tags", WORDS, "without it: none"),
        ),
    ),
    Command(
        "vhosts delete",
        "with its queues and messages; its connections are closed",
        (_named("of the virtual host"),),
    ),
    Command(
        "vhosts limits",
        "how much may be in a virtual host",
        (
            _named("of the virtual host"),
            Argument("max-connections", LIMIT, "-1: no limit; without it: not changed"),
            Argument("max-queues", LIMIT, "-1: no limit; without it: not changed"),
        ),
    ),
    Command(
        "vhosts default-queue-type",
        "type of queues declared without one; existing queues are not changed",
        (
            _named("of the virtual host"),
            Argument("type", QUEUE_TYPE, "classic, quorum or stream; without it: no default any more", is_first=True),
        ),
    ),
    *_policies("policies", "policies"),
    *_policies("operator-policies", "operator policies"),
    Command(
        "parameters list",
        "what plug-ins of RabbitMQ would be told",
        (Argument("component", NAME, "only of this plug-in"), _OF_VHOST),
    ),
    Command("parameters set", "add one, or replace the one of that name", (*_PARAMETER, _VALUE, _IN_VHOST)),
    Command("parameters clear", "delete one", (*_PARAMETER, _IN_VHOST)),
    Command("global-parameters list", "those of no virtual host"),
    Command("global-parameters set", "add one, or replace the one of that name", (_named("of the parameter"), _VALUE)),
    Command("global-parameters clear", "delete one", (_named("of the parameter"),)),
    Command(
        "cluster-name",
        "what the broker calls itself",
        (Argument("name", NAME, "the new name; without it: not changed", is_first=True),),
    ),
    Command("definitions export", "everything that is declared and set, as RabbitMQ's JSON", (_OF_VHOST,), reads=True),
    Command(
        "definitions import",
        "add and replace the contents of a file of RabbitMQ's JSON",
        (
            Argument("definitions", DOCUMENT, "the file", is_required=True, is_first=True, typed="file"),
            _vhost("everything in it is for this virtual host"),
        ),
    ),
)


def _by_command(commands: Iterable[Command]) -> dict[str, dict[str, Command]]:
    found: dict[str, dict[str, Command]] = {}
    for command in commands:
        name, _, action = command.words.partition(" ")
        found.setdefault(name, {})[action] = command
    return found


#: Command -> action ("" where it has none) -> its row. The first action is the default.
COMMANDS = _by_command(_COMMANDS)


def find(name: object, arguments: dict[str, Any]) -> Command:
    """The row of a command; `action` is removed from the arguments. Raises: CommandError."""
    actions = COMMANDS.get(name) if isinstance(name, str) else None
    if actions is None:
        near = nearest(name, COMMANDS) if isinstance(name, str) else ""
        raise CommandError(f"unknown command {shown(name)}{near}, expected one of {', '.join(COMMANDS)}")
    if "" in actions:
        return actions[""]
    wanted = arguments.pop("action", None)
    action = actions.get(next(iter(actions)) if wanted is None else wanted) if _is_text(wanted) else None
    if action is None:
        near = nearest(wanted, actions) if isinstance(wanted, str) else ""
        raise CommandError(f"{name}: unknown action {shown(wanted)}{near}, expected one of {', '.join(actions)}")
    return action


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)
