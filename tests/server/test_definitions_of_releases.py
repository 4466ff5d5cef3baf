"""Definitions as RabbitMQ's releases write them, from 3.0 to 4.3: all load, or say what is wrong with one entry.

The files are ours, each in the shape of one release.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from leveret.configured.configured_users import DEFAULT_GUEST
from leveret.engine import Broker, ManualClock, Users
from leveret.operator.control import ControlTable
from leveret.operator.definitions import import_steps
from leveret.operator.definitions_reader import DefinitionsFault
from leveret.operator.json_file import JsonFault, read_json_file
from leveret.operator.steps import finished


def table_for() -> ControlTable:
    """Of a new broker."""
    table = ControlTable()
    table.operator.attach(Broker(ManualClock(), Users([DEFAULT_GUEST])))
    return table


_SALT = b"\x01\x02\x03\x04"


def hashed(algorithm: str) -> str:
    """Of the password `hare`."""
    return base64.b64encode(_SALT + hashlib.new(algorithm, _SALT + b"hare").digest()).decode()


_GRANT = {"user": "u", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
_QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
_EXCHANGE = {"name": "e", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False}
_BINDING = {"source": "e", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": "#"}
_POLICY = {"vhost": "/", "name": "p", "pattern": "^q", "definition": {"max-length": 9}, "priority": 0}


def of_release(version: str, user: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document with one of each."""
    rabbit = (
        {"rabbit_version": version}
        if version < "3.7"
        else dict.fromkeys(("rabbit_version", "rabbitmq_version"), version)
    )
    base = {
        **rabbit,
        "users": [{"name": "u", "tags": "administrator", **user}],
        "vhosts": [{"name": "/"}],
        "permissions": [_GRANT],
        "parameters": [],
        "policies": [_POLICY],
        "queues": [_QUEUE],
        "exchanges": [{**_EXCHANGE, "internal": False, "arguments": {}}],
        "bindings": [{**_BINDING, "arguments": {}}],
    }
    return base | more


_MD5, _SHA256, _SHA512 = hashed("md5"), hashed("sha256"), hashed("sha512")
_NAMED = {"password_hash": _SHA256, "hashing_algorithm": "rabbit_password_hashing_sha256"}

RELEASES = {
    # Until 3.5 nobody says which algorithm; `internal` and `arguments` may be missing, and a policy applies to all.
    "3.0": of_release("3.0.4", {"password_hash": _MD5}, exchanges=[_EXCHANGE], bindings=[_BINDING]),
    "3.2": of_release("3.2.4", {"password_hash": _MD5}, policies=[_POLICY | {"apply-to": "all"}]),
    "3.3": of_release("3.3.5", {"password_hash": _MD5, "tags": ""}),
    "3.4": of_release("3.4.4", {"password_hash": _MD5}),
    "3.5": of_release("3.5.7", {"password_hash": _MD5}),
    "3.6.0, SHA-256 without its name": of_release("3.6.0", {"password_hash": _SHA256}),
    "3.6, a user of 3.5": of_release(
        "3.6.6", {"password_hash": _MD5, "hashing_algorithm": "rabbit_password_hashing_md5"}
    ),
    "3.6, SHA-512": of_release(
        "3.6.16", {"password_hash": _SHA512, "hashing_algorithm": "rabbit_password_hashing_sha512"}
    ),
    "3.7, empty objects as []": of_release(
        "3.7.28",
        _NAMED,
        vhosts=[{"name": "/", "limits": []}],
        global_parameters=[{"name": "cluster_name", "value": "rabbit@here"}],
        topic_permissions=[{"user": "u", "vhost": "/", "exchange": "", "write": ".*", "read": ".*"}],
        parameters=[{"vhost": "/", "component": "vhost-limits", "name": "limits", "value": []}],
        queues=[_QUEUE | {"arguments": []}],
        exchanges=[_EXCHANGE | {"arguments": []}],
        bindings=[_BINDING | {"arguments": []}],
    ),
    "3.8, limits of users": of_release("3.8.9", {**_NAMED, "limits": []}),
    "3.9, tags as a list": of_release("3.9.13", {**_NAMED, "tags": ["administrator"], "limits": {}}),
    "3.10, limits as pairs": of_release(
        "3.10.8",
        _NAMED,
        vhosts=[{"name": "/", "limits": [["max-queues", 5], ["max-connections", 9]], "metadata": []}],
    ),
    "3.11, about the virtual host": of_release(
        "3.11.5",
        _NAMED,
        vhosts=[
            {
                "name": "/",
                "description": "",
                "metadata": {"description": "Default virtual host", "tags": [], "default_queue_type": "undefined"},
                "tags": [],
                "limits": [],
            }
        ],
    ),
    "3.13, an operator's size of a group": of_release(
        "3.13.7",
        _NAMED,
        policies=[
            _POLICY | {"name": "groups", "definition": {"target-group-size": 5}, "apply-to": "quorum_queues"},
            _POLICY | {"name": "filters", "definition": {"stream-filter-size-bytes": 32}, "apply-to": "streams"},
        ],
        parameters=[
            {
                "vhost": "/",
                "component": "operator_policy",
                "name": "cap",
                "value": {
                    "pattern": "",
                    "apply-to": "classic_queues",
                    "priority": 0,
                    "definition": {"overflow": "reject-publish", "queue-version": 2},
                },
            }
        ],
    ),
    "4.0, a default type of queues": of_release(
        "4.0.5",
        _NAMED,
        product_name="RabbitMQ",
        rabbitmq_definition_format="cluster",
        original_cluster_name="rabbit@here",
        explanation="Definitions of cluster 'rabbit@here'",
        vhosts=[{"name": "/", "metadata": {"description": "d", "default_queue_type": "quorum"}}],
        exchanges=[{**_EXCHANGE, "type": "topic", "internal": False, "arguments": {}}],
    ),
    "4.2, protected from deletion": of_release(
        "4.2.0", _NAMED, vhosts=[{"name": "/", "metadata": {"protected_from_deletion": True, "tags": []}}]
    ),
    "4.3, delayed retries": of_release(
        "4.3.0",
        _NAMED,
        policies=[
            _POLICY
            | {
                "apply-to": "quorum_queues",
                "definition": {
                    "delayed-retry-type": "all",
                    "delayed-retry-min": 1000,
                    "delayed-retry-max": 9000,
                    "consumer-disconnected-timeout": 60000,
                    "member-placement-tag": "zone-1",
                },
            }
        ],
    ),
    "no version at all": {
        key: value for key, value in of_release("3.5", {"password_hash": _MD5}).items() if "version" not in key
    },
}


@pytest.mark.parametrize("release", RELEASES)
def test_files_of_every_release_load_whole(release: str) -> None:
    """The user logs in with the password that was hashed then; nothing is left out."""
    document = json.loads(json.dumps(RELEASES[release]))
    table = table_for()
    answer = finished(import_steps(table.broker, document))
    assert (answer["faults"], answer["remarks"]) == ([], [])
    user = table.broker.users.find("u")
    assert user is not None and user.password.is_right("hare") and not user.password.is_right("rabbit")
    vhost = table.broker.virtual_hosts["/"]
    assert vhost.queues["q"].durable and vhost.exchanges["e"].durable
    assert [binding.routing_key for binding in vhost.queues["q"].incoming] == ["#"]
    assert {policy.name for policy in table.broker.context.policies} >= {one["name"] for one in document["policies"]}


@pytest.mark.parametrize(
    "section, entry, line",
    [
        (
            "bindings",
            {**_BINDING, "destination": "amq.gen-Q"},
            "bindings[1]: left out: no queue 'amq.gen-Q' in vhost '/'",
        ),
        ("bindings", {**_BINDING, "source": "gone"}, "bindings[1]: left out: no exchange 'gone' in vhost '/'"),
        (
            "bindings",
            {**_BINDING, "destination": "gone", "destination_type": "exchange"},
            "bindings[1]: left out: no exchange 'gone' in vhost '/'",
        ),
        (
            "exchanges",
            {**_EXCHANGE, "name": "amq.rabbitmq.logs"},
            "exchanges[1]: left out: exchange 'amq.rabbitmq.logs': names with amq. are the broker's own",
        ),
        (
            "queues",
            {**_QUEUE, "durable": False},
            "queues[1]: left out: queue 'q' is here twice: the first one is declared",
        ),
        (
            "exchanges",
            {**_EXCHANGE, "type": "fanout"},
            "exchanges[1]: left out: exchange 'e' is here twice: the first one is declared",
        ),
    ],
)
def test_what_releases_leave_in_a_file_is_remarked(section: str, entry: dict[str, Any], line: str) -> None:
    """An export beside an exclusive queue has its bindings. RabbitMQ passes over these, and so do we, also whole."""
    document = json.loads(json.dumps(RELEASES["4.2, protected from deletion"]))
    document[section].append(entry)
    table = table_for()
    answer = finished(import_steps(table.broker, document, is_whole=True))
    assert (answer["faults"], answer["remarks"]) == ([], [line])
    assert "q" in table.broker.virtual_hosts["/"].queues


_BAD = {
    "vhosts": ({"name": "v", "metadata": {"tags": 5}}, "tags must be a list of words"),
    "users": ({"name": "x", "password_hash": "abc"}, "password_hash: expected the base64 text of 36 octets"),
    "permissions": ({**_GRANT, "read": "("}, "missing )"),
    "policies": ({**_POLICY, "definition": {"max-lenght": 1}}, '[{<<"max-lenght">>,1}] are not recognised'),
    "exchanges": ({**_EXCHANGE, "name": "f", "type": "x-plug"}, "invalid exchange type 'x-plug'"),
    "queues": ({**_QUEUE, "name": "r", "vhost": "no"}, "no virtual host 'no'"),
    "bindings": (
        {**_BINDING, "destination_type": "shelf"},
        "destination_type: expected queue or exchange, not 'shelf'",
    ),
}


@pytest.mark.parametrize("section", _BAD)
def test_one_wrong_entry_does_not_stop_the_others(section: str) -> None:
    """It is named; everything else is there, and the counts say how much that is."""
    entry, why = _BAD[section]
    document = json.loads(json.dumps(RELEASES["4.2, protected from deletion"]))
    document[section].insert(0, entry)
    table = table_for()
    answer = finished(import_steps(table.broker, document))
    (line,) = answer["faults"]
    assert line.startswith(f"{section}[0]: ") and why in line
    assert answer["imported"] == dict.fromkeys(answer["imported"], 1)
    vhost = table.broker.virtual_hosts["/"]
    assert vhost.queues["q"].incoming and table.broker.users.find("u") is not None
    with pytest.raises(DefinitionsFault):
        finished(import_steps(table_for().broker, document, is_whole=True))


def test_the_export_of_one_virtual_host() -> None:
    """Its entries do not name it: where to import it is said."""
    document = {"queues": [{"name": "q", "durable": True}]}
    (line,) = finished(import_steps(table_for().broker, document))["faults"]
    assert line.startswith("queues[0]: vhost: is missing, as in the export of one virtual host")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_files_as_editors_and_shells_save_them(tmp_path: Path, encoding: str) -> None:
    """With and without a byte order mark, and as PowerShell writes them."""
    file = tmp_path / "d.json"
    file.write_text('{"queues": [{"name": "höhle", "vhost": "/"}]}', encoding=encoding)
    assert read_json_file(str(file)).value["queues"][0]["name"] == "höhle"


@pytest.mark.parametrize(
    "text, line, reason",
    [
        ('{"a": [1,\n 2,\n]}', 2, "a comma after the last entry (column 3)"),
        ('{"a": 1,\n}', 1, "a comma after the last entry (column 8)"),
        ('{"a": [1\n 2]}', 2, 'a comma is missing before "2]}" (column 2)'),
        ('{"a" 1}', 1, 'a colon is missing before "1}" (column 6)'),
        ("{'a': 1}", 1, "\"'a': 1}\": text needs double quotation marks (column 2)"),
        ('{\n// of us\n"a": 1}', 2, '"// of us": JSON has no comments (column 1)'),
        ('{"a": 1}\n{"b": 2}', 2, 'there is more text after its end: "{\\"b\\": 2}" (column 1)'),
        ('{"a": [1, 2', 1, "it ends before it is complete (column 12)"),
        ("", 1, "the file is empty (column 1)"),
        ("\n \n", 1, "the file is empty (column 1)"),
        ('{"a": True}', 1, 'expected a value, not "True}" (column 7)'),
        ("{a: 1}", 1, 'expected a name between double quotation marks, not "a: 1}" (column 2)'),
        ('{"a": "x\ty"}', 1, "a tab or the end of a line inside of text: expected \\t or \\n (column 9)"),
        ("[" * 100_000, 1, "is too deep (column 1)"),
        *(
            (f'{{"a": {number}}}', 1, "a number of more than 30 digits or too large, NaN, or Infinity (column 1)")
            for number in ("NaN", "-Infinity", "1e999", "1" * 31, "1" * 5000)
        ),
    ],
)
def test_what_is_not_json_has_its_place_and_reason(tmp_path: Path, text: str, line: int, reason: str) -> None:
    """Of files that people wrote."""
    file = tmp_path / "d.json"
    file.write_text(text)
    with pytest.raises(JsonFault) as refused:
        read_json_file(str(file))
    assert (refused.value.line, str(refused.value)) == (line, f"is not JSON: {reason}")


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_faults_have_the_lines_of_their_entries(tmp_path: Path, indent: int | None) -> None:
    """In the order of the file, however it is laid out, whatever order its sections have."""
    document = {"bindings": [1], "queues": [_QUEUE, "x", {}], "users": 5, "more": {"a": []}, "exchanges": []}
    file = tmp_path / "d.json"
    file.write_text(json.dumps(document, indent=indent))
    read = read_json_file(str(file))
    lines = read.text.split("\n")
    placed = read.placed(["users: a", "queues[2]: b", "queues[1]: c", "bindings[0]: d", "else: e"])
    numbers = [int(one.rsplit("/", 1)[1].split(":")[1]) for one in placed]
    assert numbers == sorted(numbers)
    if indent is not None:
        shown = {one.split(": ", 1)[1]: lines[number - 1].strip() for one, number in zip(placed, numbers)}
        assert shown["bindings[0]: d"] == "1" and shown["queues[1]: c"] == '"x",'
        assert shown["users: a"] == '"users": 5,'
