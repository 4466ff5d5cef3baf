"""All that can be asked of a running broker: commands, their actions and arguments, as data.

`control.ControlTable` does them; `leveret ctl` reads its arguments, help and refusals from here. A test compares both.
Source: ruling 24; interfaces page.
"""

from collections.abc import Iterable
from typing import Any

from ..settings.faults import nearest
from ..settings.values import shown
from .command_arguments import (
    ANY_PATTERN,
    DOCUMENT,
    JSON,
    LIMIT,
    NAME,
    NUMBER,
    PATTERN,
    QUEUE_TYPE,
    RING_SIZE,
    TEXT,
    WORDS,
    Argument,
    Command,
    CommandError,
)

#: What a client is told when the operator gives no reason: the words of RabbitMQ's management.
CLOSED_BY_HAND = "Closed via management plugin"
#: What clients are told that publish while the operator's alarm is on: the words of RabbitMQ's memory alarm.
ALARM_BY_HAND = "low on memory"


def _vhost(text: str = 'the virtual host that it is in (default "/")') -> Argument:
    return Argument("vhost", NAME, text)


_IN_VHOST = _vhost()
_OF_VHOST = _vhost("of this virtual host alone")
_QUEUE = Argument("queue", NAME, "the queue's name", is_required=True, is_first=True)
_ID = Argument("id", NUMBER, "the message, as `scheduled list` names it", is_required=True, is_first=True)
_USER = Argument("user", NAME, "the user's name", is_required=True, is_first=True)
_OF_USER = Argument("user", NAME, "of this user alone")
_PASSWORD = (
    Argument("password", TEXT, "in clear; not said here: it is read from the terminal or standard input"),
    Argument("password-hash", TEXT, "or salt and hash, base64, as RabbitMQ keeps it"),
    Argument("hashing-algorithm", TEXT, "how it was hashed (default rabbit_password_hashing_sha256)"),
)


def _named(text: str) -> Argument:
    return Argument("name", NAME, text, is_required=True, is_first=True)


def _pattern(name: str, text: str) -> Argument:
    return Argument(name, PATTERN, text, is_required=True, is_first=True)


def _policies(command: str, title: str) -> tuple[Command, ...]:
    return (
        Command(f"{command} list", f"{title}, the most important first", (_OF_VHOST,)),
        Command(
            f"{command} set",
            "add one, or replace the one of that name",
            (
                _named("of the policy"),
                Argument("pattern", ANY_PATTERN, "whose names match, it concerns", is_required=True, is_first=True),
                Argument("definition", JSON, 'like {"max-length": 10}', is_required=True, is_first=True),
                Argument("apply-to", TEXT, "all (the default), queues, exchanges, classic_queues, ..."),
                Argument("priority", JSON, "of those that match the highest counts (default 0)"),
                _IN_VHOST,
            ),
        ),
        Command(f"{command} clear", "take one away", (_named("of the policy"), _IN_VHOST)),
    )


_COMMANDS = (
    Command("status", "what the broker holds now, and what has happened since it started"),
    Command("queues", "all queues with what is in them", (_OF_VHOST,)),
    Command(
        "explain",
        "every setting of a queue or address, and which rule gave it",
        (_named("of the queue or address"), _OF_VHOST),
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
    Command("scheduled list", "messages that wait for their time, soonest first", (_QUEUE, _IN_VHOST)),
    Command("scheduled fire", "let one come now", (_QUEUE, _ID, _IN_VHOST)),
    Command("scheduled cancel", "take one out", (_QUEUE, _ID, _IN_VHOST)),
    Command(
        "scheduled reschedule",
        "let one come later, or sooner",
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
        "all subscriptions: unacknowledged deliveries, and since when the oldest is out",
        (_OF_VHOST, Argument("queue", NAME, "of this queue alone")),
    ),
    Command(
        "close-connection",
        "send a client away: connection.close 320, CONNECTION_FORCED",
        (
            Argument(
                "name",
                NAME,
                "as `connections` shows it, or the name that clients gave: then all of that name",
                is_required=True,
                is_first=True,
            ),
            Argument("reason", TEXT, f"what the client is told (default: {CLOSED_BY_HAND})", is_first=True),
        ),
    ),
    Command(
        "block",
        "an alarm by hand: clients that publish are blocked, until `unblock` or a restart",
        (Argument("reason", NAME, f"what they are told (default: {ALARM_BY_HAND})", is_first=True),),
    ),
    Command("unblock", "the end of the alarm"),
    Command(
        "trace-on",
        "copies of what clients publish and get go to the exchange amq.rabbitmq.trace, until a restart",
        (Argument("vhost", NAME, 'of this virtual host (default "/")', is_first=True),),
    ),
    Command("trace-off", "no copies any more", (Argument("vhost", NAME, '(default "/")', is_first=True),)),
    Command("reload", "read the configuration files again"),
    Command("users list", "all users"),
    Command(
        "users add",
        "a user, who may do nothing yet",
        (_named("of the user"), *_PASSWORD, Argument("tags", WORDS, "administrator, monitoring, ...")),
    ),
    Command("users delete", "forget a user, and close its connections", (_named("of the user"),)),
    Command("users passwd", "another password from the next login on", (_named("of the user"), *_PASSWORD)),
    Command(
        "users tags",
        "all tags that a user has from now on",
        (_named("of the user"), Argument("tags", WORDS, "none when it is not said", is_first=True)),
    ),
    Command(
        "users limits",
        "how much a user may open",
        (
            _named("of the user"),
            Argument("max-connections", LIMIT, "-1: no limit; not said: as before"),
            Argument("max-channels", LIMIT, "-1: no limit; not said: as before"),
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
    Command("permissions clear", "nothing is allowed there any more", (_USER, _IN_VHOST)),
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
        "a virtual host; one that is there stays as it is",
        (
            _named("of the virtual host"),
            Argument("default-queue-type", QUEUE_TYPE, "of queues whose declaration says none"),
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
            Argument("max-connections", LIMIT, "-1: no limit; not said: as before"),
            Argument("max-queues", LIMIT, "-1: no limit; not said: as before"),
        ),
    ),
    Command(
        "vhosts default-queue-type",
        "of which type queues are whose declaration says none; those that are there stay as they are",
        (
            _named("of the virtual host"),
            Argument("type", QUEUE_TYPE, "classic, quorum or stream; not said: no default any more", is_first=True),
        ),
    ),
    *_policies("policies", "policies"),
    *_policies("operator-policies", "operator policies"),
    Command("definitions export", "everything that was declared and set, as RabbitMQ's JSON"),
    Command(
        "definitions import",
        "add and replace what a file of RabbitMQ's JSON says",
        (Argument("definitions", DOCUMENT, "the file", is_required=True, is_first=True, typed="file"),),
    ),
)


def _by_command(commands: Iterable[Command]) -> dict[str, dict[str, Command]]:
    found: dict[str, dict[str, Command]] = {}
    for command in commands:
        name, _, action = command.words.partition(" ")
        found.setdefault(name, {})[action] = command
    return found


#: Command -> action ("" where it has none) -> what it takes. The first action is meant when none is said.
COMMANDS = _by_command(_COMMANDS)


def find(name: object, arguments: dict[str, Any]) -> Command:
    """The command that is meant; `action` is taken out of the arguments. Raises: CommandError."""
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
