"""The commands about users, permissions, virtual hosts, policies, parameters and definitions, as data.

Source: ruling 24; interfaces page.
"""

from typing import Any

from .kinds import FLAG, JSON, NAME, TEXT
from .shared_arguments import (
    ANY_PATTERN,
    DOCUMENT,
    IN_VHOST,
    LIMIT,
    OF_USER,
    OF_VHOST,
    PATTERN,
    QUEUE_TYPE,
    WORDS,
    Argument,
    Command,
    named,
    vhost,
)

_USER = Argument("user", NAME, "the user's name", is_required=True, is_first=True)
_PASSWORD = (
    Argument("password", TEXT, "in clear text; without it, it is read from the terminal or standard input"),
    Argument("password-hash", TEXT, "or salt and hash in base64, as in RabbitMQ's definitions"),
    Argument("hashing-algorithm", TEXT, "of the hash (default rabbit_password_hashing_sha256)"),
)


def _pattern(name: str, text: str) -> Any:
    return Argument(name, PATTERN, text, is_required=True, is_first=True)


_PARAMETER = (
    Argument("component", NAME, "the plug-in's name for itself", is_required=True, is_first=True),
    named("of the parameter"),
)
_VALUE = Argument("value", JSON, "any JSON", is_required=True, is_first=True)


def _policies(command: str, title: str) -> tuple[Any, ...]:
    return (
        Command(f"{command} list", f"{title}, the highest priority first", (OF_VHOST,)),
        Command(
            f"{command} set",
            "add one, or replace the one of that name",
            (
                named("of the policy"),
                Argument("pattern", ANY_PATTERN, "of the names it applies to", is_required=True, is_first=True),
                Argument("definition", JSON, 'like {"max-length": 10}', is_required=True, is_first=True),
                Argument("apply-to", TEXT, "all (the default), queues, exchanges, classic_queues, ..."),
                Argument("priority", JSON, "of those that match the highest wins (default 0)"),
                IN_VHOST,
            ),
        ),
        Command(f"{command} clear", "delete one", (named("of the policy"), IN_VHOST)),
    )


#: Their rows.
ADMINISTRATION = (
    Command("users list", "all users"),
    Command(
        "users add",
        "a user, without permissions yet",
        (named("of the user"), *_PASSWORD, Argument("tags", WORDS, "administrator, monitoring, ...")),
    ),
    Command("users delete", "delete a user, and close its connections", (named("of the user"),)),
    Command("users passwd", "a new password, from the next login on", (named("of the user"), *_PASSWORD)),
    Command(
        "users tags",
        "replace the tags of a user",
        (named("of the user"), Argument("tags", WORDS, "without it: none", is_first=True)),
    ),
    Command(
        "users limits",
        "how much a user may open",
        (
            named("of the user"),
            Argument("max-connections", LIMIT, "-1: no limit; without it: not changed"),
            Argument("max-channels", LIMIT, "-1: no limit; without it: not changed"),
        ),
    ),
    Command(
        "users replace",
        "a user with this password (or none) and these tags, new or as it was otherwise",
        (
            named("of the user"),
            *_PASSWORD,
            Argument("tags", WORDS, "administrator, monitoring, ...", is_required=True),
        ),
    ),
    Command("permissions list", "who may do what", (OF_USER, OF_VHOST)),
    Command(
        "permissions set",
        "what a user may do in a virtual host",
        (
            _USER,
            _pattern("configure", "names of what it may declare and delete"),
            _pattern("write", "names of what it may publish to"),
            _pattern("read", "names of what it may consume from"),
            IN_VHOST,
        ),
    ),
    Command("permissions clear", "allow nothing there any more", (_USER, IN_VHOST)),
    Command("topic-permissions list", "who may use which routing keys", (OF_USER, OF_VHOST)),
    Command(
        "topic-permissions set",
        "routing keys that a user may use at a topic exchange",
        (
            _USER,
            Argument("exchange", NAME, "the topic exchange", is_required=True, is_first=True),
            _pattern("write", "to publish with"),
            _pattern("read", "to bind with"),
            IN_VHOST,
        ),
    ),
    Command(
        "topic-permissions clear",
        "of one exchange, or of all",
        (_USER, Argument("exchange", NAME, "the topic exchange", is_first=True), IN_VHOST),
    ),
    Command("vhosts list", "all virtual hosts"),
    Command(
        "vhosts add",
        "a virtual host; an existing one is not changed",
        (
            named("of the virtual host"),
            Argument("default-queue-type", QUEUE_TYPE, "of queues declared without a type"),
        ),
    ),
    Command("vhosts about", "its description and tags", (named("of the virtual host"),)),
    Command(
        "vhosts describe",
        "a text and words about a virtual host",
        (
            named("of the virtual host"),
            Argument("description", TEXT, "without it: none"),
            Argument("tags", WORDS, "without it: none"),
        ),
    ),
    Command(
        "vhosts delete",
        "with its queues and messages; its connections are closed",
        (named("of the virtual host"),),
    ),
    Command(
        "vhosts limits",
        "how much may be in a virtual host",
        (
            named("of the virtual host"),
            Argument("max-connections", LIMIT, "-1: no limit; without it: not changed"),
            Argument("max-queues", LIMIT, "-1: no limit; without it: not changed"),
        ),
    ),
    Command(
        "vhosts default-queue-type",
        "type of queues declared without one; existing queues are not changed",
        (
            named("of the virtual host"),
            Argument("type", QUEUE_TYPE, "classic, quorum or stream; without it: no default any more", is_first=True),
        ),
    ),
    *_policies("policies", "policies"),
    *_policies("operator-policies", "operator policies"),
    Command(
        "parameters list",
        "what plug-ins of RabbitMQ would be told",
        (Argument("component", NAME, "only of this plug-in"), OF_VHOST),
    ),
    Command("parameters set", "add one, or replace the one of that name", (*_PARAMETER, _VALUE, IN_VHOST)),
    Command("parameters clear", "delete one", (*_PARAMETER, IN_VHOST)),
    Command("global-parameters list", "those of no virtual host"),
    Command("global-parameters set", "add one, or replace the one of that name", (named("of the parameter"), _VALUE)),
    Command("global-parameters clear", "delete one", (named("of the parameter"),)),
    Command(
        "cluster-name",
        "what the broker calls itself",
        (Argument("name", NAME, "the new name; without it: not changed", is_first=True),),
    ),
    Command("definitions export", "everything that is declared and set, as RabbitMQ's JSON", (OF_VHOST,), reads=True),
    Command(
        "definitions import",
        "add and replace the contents of a file of RabbitMQ's JSON",
        (
            Argument("definitions", DOCUMENT, "the file", is_required=True, is_first=True),
            vhost("everything in it is for this virtual host"),
            Argument("all-or-nothing", FLAG, "change nothing if anything in it is wrong"),
        ),
    ),
)
