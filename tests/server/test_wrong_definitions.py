"""Files of definitions with one wrong part, as RabbitMQ 3.10.8 takes or refuses them: the same here, or listed.

RabbitMQ's answers are recorded by definitions_beside_rabbitmq.py. Where RabbitMQ fails (500) or prints a term of
Erlang's, Leveret says which entry is wrong: the texts are not compared.
"""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from api_client import ApiClient
from wrong_definitions import Answer, answers

from leveret.testing import start_broker

RECORD = Path(__file__).with_name("wrong_definitions.json")

#: Taken by RabbitMQ, which leaves the entry out without a word, or keeps it under a name that is no text. Here 400.
REFUSED = {
    "an entry that is no object": ("*[[]0] = 5", "*[[]0] = []", "global_parameters[[]0] = {}"),
    "an entry of no virtual host, or without one": (
        "*[[]0].vhost = *",
        "*[[]0] without vhost",
        "bindings*no virtual host",
    ),
    "a name that is no text": (
        *("*permissions[[]0].user = *", "topic_permissions[[]0].*", "topic_permissions[[]0] without exchange"),
        *("global_parameters[[]0].name = *", "global_parameters[[]0] without name", "policies[[]0].name = *"),
        *("exchanges[[]0].name = []", "bindings[[]0].source = *", "bindings[[]0] without source"),
        *("bindings[[]0].destination = *", "bindings[[]0] without destination", '*destination": ""}'),
    ),
    "a flag that is neither true nor false": ("exchanges[[]0].auto_delete = *", "exchanges[[]0].internal = *"),
    "an alternate exchange, or name of the cluster, that is no text": (
        '*alternate-exchange": 5}',
        "global cluster_name = 5",
    ),
    "a name or key that AMQP cannot carry": ("* 'wwwwwwww*", '*routing_key": "wwwwww*'),
    "a password hash that no password can have": (
        *('user with {"password_hash*', "*rabbit_password_hashing_md5*", "users[[]0].*hash* = []"),
    ),
    "what 3.10 does not read of a virtual host": (
        *('limits in the virtual host {"max-queues": "9"}', "default type none", "default type 5"),
        *('metadata {"description": 5}', 'virtual host with {"description": 5}'),
        *('metadata {"tags": [[]5]}', 'virtual host with {"tags": [[]5]}'),
    ),
    "a priority that is no whole number": ('operator policy with {"priority": 1.5}',),
}
#: Refused by RabbitMQ. Here 204.
TAKEN = {
    "null, or a key that is not there, means its default": (
        *("users[[]0].password_hash = null", "users[[]0].limits = null"),
        *("exchanges[[]0].durable = null", "exchanges[[]0].arguments = null"),
        *("queues[[]0].durable = null", "queues[[]0].auto_delete = null", "queues[[]0].arguments = null"),
        "bindings[[]0].arguments = null",
        *("exchanges[[]0] without durable", "queues[[]0] without durable", "queues[[]0] without auto_delete"),
        *("bindings[[]0] without destination_type", "operator policy without priority"),
        *('user with {"password": ""}', 'user with {"password": null}*'),
    ),
    "[] as earlier releases write {}": ("users[[]0].limits = []",),
    "of two entries for one user the last one counts": ("users twice", "user twice, other tags"),
    "null in arguments, which an export may have": ('*"x*null*',),
    "of a newer release": ("policy applied to streams", "metadata rabbit_quorum_queue"),
    "accepted by AMQP, too": ('queue with {"x-queue-master-locator": "min-masters"}',),
    "parameters of plug-ins are kept": ("parameter w of none",),
}
#: Both take them, and have something else then.
OTHERWISE = {
    "a default where RabbitMQ keeps no flag, no algorithm and no value": (
        *("users[[]0].hashing_algorithm = null", "exchanges[[]0] without auto_delete", "exchanges[[]0].*= null"),
        *("global_parameters[[]0] without value", "operator policy without apply-to"),
    ),
    "a limit of -1, or an empty one, is none": ("limits of a * -1}", "parameters[[]0].value = []"),
    "queues with generated names are exported, and imported again": ("queue 'amq.*",),
    "of a newer release": ("default type *quorum*", "metadata *", 'virtual host with {"tags": "a,b"}'),
    "an empty tag is none": ('user with {"tags": [[]""]}',),
    "shovels do not run": ("parameter w of shovel",),
}


@pytest.fixture(scope="module")
def pairs() -> Iterator[dict[str, tuple[Answer, Answer]]]:
    """RabbitMQ's and ours, by case."""
    theirs = json.loads(RECORD.read_text())
    with start_broker(management=True) as broker:
        ours = dict(answers(ApiClient(broker.management_url)))
    assert theirs.keys() == ours.keys()
    yield {name: (theirs[name], ours[name]) for name in theirs}


def unlisted(names: set[str], listed: dict[str, tuple[str, ...]]) -> set[str]:
    """Names that match no pattern, and patterns that no name matches."""
    patterns = {pattern for some in listed.values() for pattern in some}
    met = {(name, pattern) for name in names for pattern in patterns if fnmatchcase(name, pattern)}
    return names - {name for name, _ in met} | patterns - {pattern for _, pattern in met}


def test_refusals_are_rabbitmqs_or_listed(pairs: dict[str, tuple[Answer, Answer]]) -> None:
    """A file that RabbitMQ imports is imported; a wrong one is refused, and says which entry is wrong."""
    refused = {name for name, (theirs, ours) in pairs.items() if theirs[0] < 300 <= ours[0]}
    taken = {name for name, (theirs, ours) in pairs.items() if theirs[0] >= 300 > ours[0]}
    assert unlisted(refused, REFUSED) == set()
    assert unlisted(taken, TAKEN) == set()
    assert {ours[0] for _, ours in pairs.values()} == {204, 400}
    assert [name for name, (_, ours) in pairs.items() if ours[0] == 400 and not ours[1]] == []


def test_imported_is_the_same_or_listed(pairs: dict[str, tuple[Answer, Answer]]) -> None:
    """What both take is there afterwards with the same fields."""
    different = {
        name for name, (theirs, ours) in pairs.items() if max(theirs[0], ours[0]) < 300 and theirs[2] != ours[2]
    }
    assert unlisted(different, OTHERWISE) == set()
