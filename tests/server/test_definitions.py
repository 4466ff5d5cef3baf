"""Definitions in RabbitMQ's JSON: there and back, twice is once, all or nothing, whatever is in the file."""

import copy
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands as C
from peer import publish
from steps import steps

from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.configured.configured_users import DEFAULT_GUEST
from leveret.engine import Broker, ManualClock, User, Users, json_of_table, table_of_json
from leveret.engine.context import BrokerContext
from leveret.engine.errors import EngineError
from leveret.engine.messages.field_table import DEPTH_MAX, Field, FieldTable, decode_table, encode_table
from leveret.engine.rules.arguments import ARGUMENTS
from leveret.interop.brokers import peers
from leveret.operator.control import EXCHANGE, IMPORT_STEPS, ControlTable
from leveret.operator.definitions import export_steps, import_steps
from leveret.operator.definitions_reader import OBJECTS_A_STEP, DefinitionsFault, DefinitionsReader
from leveret.operator.steps import finished
from leveret.settings import Policies, make_policy

#: As RabbitMQ 3.10.8 exports it, shortened.
RABBIT: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "rabbitmq_version": "3.10.8",
    "product_name": "RabbitMQ",
    "product_version": "3.10.8",
    "users": [
        {
            "name": "shop",
            "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["management"],
            "limits": {"max-connections": 10},
        },
        {"name": "old", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": "a,b"},
    ],
    "vhosts": [{"name": "/"}, {"name": "shop", "limits": [], "metadata": {"description": "", "tags": []}}],
    "permissions": [{"user": "shop", "vhost": "shop", "configure": "^(?!amq\\.).*", "write": ".*", "read": ".*"}],
    "topic_permissions": [
        {"user": "shop", "vhost": "shop", "exchange": "events", "write": "^{username}\\.", "read": ".*"}
    ],
    "parameters": [
        {"vhost": "shop", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 100}},
        {"vhost": "/", "component": "federation-upstream", "name": "up", "value": {"uri": "amqp://elsewhere"}},
    ],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@here"}],
    "policies": [
        {
            "vhost": "shop",
            "name": "ttl",
            "pattern": "^t",
            "apply-to": "queues",
            "definition": {"message-ttl": 1000},
            "priority": 0,
        }
    ],
    "queues": [
        {"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}},
        {
            "name": "amq.gen-Xa2",
            "vhost": "/",
            "durable": False,
            "auto_delete": True,
            "arguments": {"x-queue-type": "classic"},
        },
    ],
    "exchanges": [
        {
            "name": "events",
            "vhost": "shop",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "lost"},
        },
        {
            "name": "amq.direct",
            "vhost": "shop",
            "type": "direct",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        },
    ],
    "bindings": [
        {
            "source": "events",
            "vhost": "shop",
            "destination": "orders",
            "destination_type": "queue",
            "routing_key": "order.#",
            "arguments": {},
        },
        {
            "source": "amq.headers",
            "vhost": "shop",
            "destination": "events",
            "destination_type": "exchange",
            "routing_key": "",
            "arguments": {"x-match": "all", "kind": "order", "weights": [1, 2.5, True, None, {"deep": "yes"}]},
        },
    ],
}


def table_for(broker: Broker | None = None) -> ControlTable:
    """The control table of a broker with the default guest."""
    table = ControlTable()
    table.operator.attach(broker or Broker(ManualClock(), Users([DEFAULT_GUEST])))
    return table


def imported(document: Any) -> ControlTable:
    """A broker that took this in."""
    table = table_for()
    finished(import_steps(table.broker, document))
    return table


def test_a_file_of_rabbitmq_is_taken_in() -> None:
    """Users with their hashes, permissions, limits, objects with typed arguments."""
    table = imported(RABBIT)
    broker = table.broker
    shop, old = broker.users.find("shop"), broker.users.find("old")
    assert shop is not None and old is not None
    assert shop.password.is_right("test12") and not old.password.is_right("")
    assert (shop.tags, old.tags, shop.max_connections) == (("management",), ("a", "b"), 10)
    assert shop.may("configure", "queue", "mine", "shop") and not shop.may("configure", "queue", "amq.x", "shop")
    vhost = broker.virtual_hosts["shop"]
    assert vhost.context.limits.max_queues == 100
    assert vhost.queues["orders"].arguments == {"x-max-length": Field("I", 5)}
    assert vhost.exchanges["events"].type == "topic"
    assert [binding.routing_key for binding in vhost.queues["orders"].incoming] == ["order.#"]
    assert [binding.source.name for binding in vhost.exchanges["events"].incoming] == ["amq.headers"]
    assert "amq.gen-Xa2" in broker.virtual_hosts["/"].queues


def test_what_is_exported_is_what_was_imported() -> None:
    """All of it: also the sections that have no effect here."""
    exported = finished(export_steps(imported(RABBIT).broker))
    json.dumps(exported)
    for section in ("parameters", "global_parameters", "policies", "queues", "bindings", "topic_permissions"):
        theirs, ours = ([json.dumps(one, sort_keys=True) for one in page[section]] for page in (RABBIT, exported))
        assert sorted(theirs) == sorted(ours), section
    assert exported["exchanges"] == RABBIT["exchanges"][:1]
    assert RABBIT["users"][0] in exported["users"]
    assert RABBIT["permissions"][0] in exported["permissions"]


def test_twice_is_once_and_from_one_broker_to_the_next() -> None:
    """Importing again, or importing an export, changes nothing."""
    table = imported(RABBIT)
    first = finished(export_steps(table.broker))
    finished(import_steps(table.broker, RABBIT))
    finished(import_steps(table.broker, first))
    assert finished(export_steps(table.broker)) == first
    assert finished(export_steps(imported(first).broker)) == first


def test_a_policy_that_an_earlier_release_accepted_is_taken_in_again() -> None:
    """Where it stands already; a new one of the kind is refused."""
    odd = {"ha-mode": "all", "ha-params": 2}
    broker = Broker(ManualClock(), Users([DEFAULT_GUEST]))
    broker.reloading.replace_policies(Policies([make_policy("p", "/", "^q", odd, is_stored=True)]))
    table = table_for(broker)
    exported = finished(export_steps(table.broker))
    finished(import_steps(table.broker, exported, is_whole=True))
    for other in ({"name": "other"}, {"definition": {**odd, "ha-params": 3}}):
        document = {**exported, "policies": [{**exported["policies"][0], **other}]}
        with pytest.raises(DefinitionsFault, match="does not take parameters"):
            finished(import_steps(table.broker, document, is_whole=True))


def test_passwords_in_clear_are_hashed_once() -> None:
    """The second import of the same password keeps the hash."""
    document = {"users": [{"name": "a", "password": "p", "tags": ""}]}
    table = imported(document)
    first = finished(export_steps(table.broker))
    assert "password" not in first["users"][1] and first["users"][1]["password_hash"]
    finished(import_steps(table.broker, document))
    assert finished(export_steps(table.broker)) == first


def test_an_import_adds_and_never_deletes() -> None:
    """What the file does not name stays; a queue that is there otherwise stays as it is, and is remarked on."""
    table = imported(RABBIT)
    other = copy.deepcopy(RABBIT["queues"][0])
    other["arguments"] = {"x-max-length": 6}
    answer = finished(import_steps(table.broker, {"queues": [other]}))
    assert answer["imported"]["queues"] == 1
    (remark,) = answer["remarks"]
    assert remark.startswith("queue 'orders' is not changed: inequivalent arg 'x-max-length'")
    assert table.broker.virtual_hosts["shop"].queues["orders"].arguments == {"x-max-length": Field("I", 5)}
    assert table.broker.users.find("shop") is not None


def test_an_import_leaves_what_it_does_not_name_of_a_user() -> None:
    """Permissions in other virtual hosts, and topic permissions at other exchanges."""
    every = dict.fromkeys(("configure", "write", "read"), ".*")
    topic = {"user": "a", "vhost": "/", "write": "w", "read": "r"}
    table = imported(
        {
            "vhosts": [{"name": "v"}],
            "users": [{"name": "a", "password": "p", "tags": "", "limits": {"max-connections": 4, "max-channels": 9}}],
            "permissions": [{"user": "a", "vhost": vhost, **every} for vhost in ("/", "v")],
            "topic_permissions": [{**topic, "exchange": name} for name in ("amq.topic", "other")],
        }
    )
    user = table.broker.users.find("a")
    assert user is not None and user.permissions is not None and set(user.permissions) == {"/", "v"}
    more = {
        "permissions": [{"user": "a", "vhost": "/", **every, "read": "r"}],
        "topic_permissions": [{**topic, "exchange": "third"}],
    }
    finished(import_steps(table.broker, more))
    user = table.broker.users.find("a")
    assert user is not None and user.permissions is not None
    assert {vhost: one.grant.read for vhost, one in user.permissions.items()} == {"/": "r", "v": ".*"}
    assert [exchange for _, exchange, _ in user.topics()] == ["amq.topic", "other", "third"]
    assert (user.max_connections, user.max_channels) == (4, 9)


def test_an_import_leaves_limits_that_it_does_not_name() -> None:
    """Releases before 3.8 wrote none; what a document says replaces all of a user's limits."""
    user = {"name": "a", "password": "p", "tags": ""}
    table = imported({"users": [{**user, "limits": {"max-connections": 4, "max-channels": 9}}]})
    for limits, left in (({}, (4, 9)), ({"limits": None}, (4, 9)), ({"limits": {"max-channels": 1}}, (None, 1))):
        document = {"users": [{**user, **limits}]}
        preview = table.run("preview", {"action": "definitions", "definitions": document})
        assert [one["state"] for one in preview["objects"]] == ([] if left == (4, 9) else ["changed"])
        finished(import_steps(table.broker, document))
        found = table.broker.users.find("a")
        assert found is not None and (found.max_connections, found.max_channels) == left


def test_users_of_this_machine_alone_stay_so() -> None:
    """The guest of any file, and whoever was one before."""
    broker = Broker(ManualClock(), Users([User("local", loopback_only=True)]))
    names = ("guest", "local", "new")
    finished(import_steps(broker, {"users": [{"name": name, "password": "p", "tags": ""} for name in names]}))
    assert [broker.users.find(name).loopback_only for name in names] == [True, True, False]


def test_limits_and_the_default_queue_type_leave_each_other() -> None:
    """They are in different sections of a file."""
    table = imported({"vhosts": [{"name": "v", "default_queue_type": "quorum"}]})
    limits = table.broker.virtual_hosts["v"].context.limits
    value = {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 5}}
    finished(import_steps(table.broker, {"parameters": [value]}))
    finished(import_steps(table.broker, {"vhosts": [{"name": "v"}]}))
    limits = table.broker.virtual_hosts["v"].context.limits
    assert (limits.default_queue_type, limits.max_queues) == ("quorum", 5)


def test_a_queue_that_goes_with_its_connection_is_not_exported() -> None:
    """Nor are its bindings: nobody could declare them."""
    table = table_for()
    vhost = table.broker.virtual_hosts["/"]
    client = table.broker.connections.open("/", DEFAULT_GUEST, name="c", flush=lambda: None)
    for name, is_exclusive in (("mine", True), ("ours", False)):
        vhost.queues.declare(name, client=client, exclusive=is_exclusive)
        vhost.bindings.add("queue", name, "amq.direct", "k", {})
    for only in (None, "/"):
        exported = finished(export_steps(table.broker, only))
        assert [queue["name"] for queue in exported["queues"]] == ["ours"]
        assert [binding["destination"] for binding in exported["bindings"]] == ["ours"]
        assert ("vhost" in exported["queues"][0], "vhost" in exported["bindings"][0]) == (only is None, only is None)


def wrong(section: str, **fields: Any) -> dict[str, Any]:
    """RABBIT with another entry behind those of a section."""
    document = copy.deepcopy(RABBIT)
    document[section].append({**copy.deepcopy(RABBIT[section][0]), **fields})
    return document


def test_what_virtual_hosts_are_about_and_the_name_of_the_cluster() -> None:
    """They come with definitions and go with them."""
    about = {"description": "of the shop", "tags": ["a", "b"]}
    table = table_for()
    named = [{"name": "cluster_name", "value": "ours"}]
    finished(import_steps(table.broker, {"vhosts": [{"name": "v", "metadata": about}], "global_parameters": named}))
    assert table.run("vhosts", {"action": "about", "name": "v"}) == about
    assert table.run("cluster-name") == {"name": "ours"}
    exported = finished(export_steps(table.broker))
    assert {"name": "v", "metadata": about} in exported["vhosts"]
    assert exported["global_parameters"] == named
    assert exported["parameters"] == []


@pytest.mark.parametrize("name", ["v", "/"])
def test_an_empty_description_is_one(name: str) -> None:
    """An import puts it in place of another one, and a virtual host that nobody described has none in an export."""
    described, empty = {"description": "x", "tags": ["a"]}, {"description": "", "tags": []}
    table = imported({"vhosts": [{"name": name, "metadata": described}]})
    finished(import_steps(table.broker, {"vhosts": [{"name": name}]}))
    assert table.run("vhosts", {"action": "about", "name": name}) == described
    finished(import_steps(table.broker, {"vhosts": [{"name": name, "metadata": empty}]}))
    assert table.run("vhosts", {"action": "about", "name": name}) == empty
    exported = finished(export_steps(table.broker))["vhosts"]
    assert {"name": name, **({"metadata": empty} if name == "/" else {})} in exported
    other = imported({"vhosts": exported})
    assert finished(export_steps(other.broker))["vhosts"] == exported


def test_topic_permissions_without_permissions() -> None:
    """They are taken in and exported, and wait for the permissions."""
    topic = {"user": "a", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}
    table = imported({"users": [{"name": "a", "password": "p", "tags": ""}], "topic_permissions": [topic]})
    exported = finished(export_steps(table.broker))
    assert exported["topic_permissions"] == [topic]
    assert [one for one in exported["permissions"] if one["user"] == "a"] == []
    finished(
        import_steps(
            table.broker,
            {"permissions": [{"user": "a", "vhost": "/", **dict.fromkeys(("configure", "write", "read"), ".*")}]},
        )
    )
    user = table.broker.users.find("a")
    assert user is not None and user.permissions is not None and not user.topics_before_permissions
    assert user.permissions["/"].grant.topics["amq.topic"].read == "^b"


@pytest.mark.parametrize(
    "document, fault",
    [
        ([], "definitions: expected an object"),
        ({"users": {}}, "users: expected a list"),
        ({"users": ["x"]}, "users[0]: expected an object"),
        (wrong("users", name=""), "users[2]: name: expected text"),
        (wrong("users", name="x" * 300), "users[2]: name: longer than 255 octets"),
        (wrong("users", name="\ud800"), "users[2]: "),
        (wrong("users", password_hash="abc"), "users[2]: password_hash: expected the base64 text"),
        (wrong("users", hashing_algorithm="rot13"), "users[2]: password_hash: expected one of"),
        (wrong("users", tags=[1]), "users[2]: tags must be a list of words"),
        (wrong("users", limits={"max-channels": "many"}), "users[2]: max-channels: expected a number"),
        (wrong("permissions", user="nobody"), "permissions[1]: no user 'nobody'"),
        (wrong("permissions", vhost="nowhere"), "permissions[1]: no virtual host 'nowhere'"),
        (wrong("permissions", read="("), "permissions[1]: missing )"),
        (wrong("permissions", read="(a)\\1"), "permissions[1]: a back-reference"),
        (wrong("permissions", read=None), "permissions[1]: read: expected text"),
        (wrong("parameters", value={"max-queues": True}), "parameters[2]: max-queues: expected a number"),
        (wrong("parameters", component=""), "parameters[2]: component: expected text"),
        ({"global_parameters": [{"name": "cluster_name", "value": 5}]}, "global_parameters[0]: value: expected a name"),
        ({"vhosts": [{"name": "v", "metadata": {"description": 5}}]}, "vhosts[0]: description: expected text"),
        ({"vhosts": [{"name": "v", "metadata": {"tags": 5}}]}, "vhosts[0]: tags must be a list of words"),
        (wrong("policies", vhost="nowhere"), "policies[1]: no virtual host"),
        (wrong("queues", name="q", arguments={"x-max-length": -1}), "queues[2]: invalid arg 'x-max-length'"),
        (wrong("queues", name="q", arguments={"x": 2**70}), "queues[2]: arguments: expected integers of 64 bits"),
        (wrong("queues", name="q", durable="yes"), "queues[2]: durable: expected true or false"),
        (wrong("exchanges", name="e", type="x-nope"), "exchanges[2]: invalid exchange type 'x-nope'"),
        (
            wrong("bindings", destination_type="shelf"),
            "bindings[2]: destination_type: expected queue or exchange, not 'shelf'",
        ),
    ],
)
def test_one_fault_and_nothing_is_changed(document: Any, fault: str) -> None:
    """Where all or nothing is asked for: every fault with its place; the broker is as it was."""
    table = table_for()
    before = finished(export_steps(table.broker))
    with pytest.raises(DefinitionsFault) as refused:
        finished(import_steps(table.broker, document, is_whole=True))
    assert any(line.startswith(fault) for line in refused.value.faults), refused.value.faults
    assert finished(export_steps(table.broker)) == before


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=12,
)
_SECTIONS = st.sampled_from([*RABBIT, "else"])


@given(st.dictionaries(_SECTIONS, st.lists(_JSON, max_size=3) | _JSON, max_size=4), st.data())
def test_any_json_is_taken_in_or_refused(document: dict[str, Any], data: st.DataObject) -> None:
    """No other error comes of it, and no half-done import."""
    entry = copy.deepcopy(RABBIT[data.draw(st.sampled_from(["users", "permissions", "queues", "bindings"]))][0])
    entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(_JSON)
    table = table_for()
    before = finished(export_steps(table.broker))
    try:
        finished(import_steps(table.broker, {"vhosts": RABBIT["vhosts"], **document, "queues": [entry]}, is_whole=True))
    except DefinitionsFault:
        assert finished(export_steps(table.broker)) == before
    else:
        json.dumps(finished(export_steps(table.broker)))


@given(st.dictionaries(st.text(max_size=9), _JSON, max_size=4))
def test_arguments_there_and_back(arguments: dict[str, Any]) -> None:
    """JSON to fields to JSON, where AMQP has room for it."""
    try:
        table = table_of_json(arguments)
    except ValueError:
        return
    assert json_of_table(table) == arguments


_INTEGERS = {"b": 8, "s": 16, "I": 32, "l": 64, "L": 64}
_UNSIGNED = {"B": 8, "u": 16, "i": 32, "T": 64}
_KEYS = st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape")) | st.just("\udcff" * 255)
_FIELDS = st.recursive(
    st.one_of(
        *(
            st.builds(Field, st.just(tag), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
            for tag, bits in _INTEGERS.items()
        ),
        *(st.builds(Field, st.just(tag), st.integers(0, 2**bits - 1)) for tag, bits in _UNSIGNED.items()),
        st.builds(Field, st.just("f"), st.floats(width=32)),
        st.builds(Field, st.just("d"), st.floats()),
        st.builds(Field, st.just("t"), st.booleans()),
        st.builds(Field, st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
        st.builds(Field, st.sampled_from("Sx"), st.binary(max_size=9)),
        st.just(Field("V", None)),
    ),
    lambda inner: (
        st.builds(Field, st.just("A"), st.lists(inner, max_size=3))
        | st.builds(Field, st.just("F"), st.dictionaries(_KEYS, inner, max_size=3))
    ),
    max_leaves=12,
)
_TABLES = st.dictionaries(_KEYS | st.sampled_from(sorted(ARGUMENTS)), _FIELDS, max_size=4)


def _nested(kinds: str) -> Field:
    """Tables (F) and arrays (A) in each other, as they are named."""
    field = Field("V", None)
    for kind in reversed(kinds):
        field = Field("F", {"x": field}) if kind == "F" else Field("A", [field])
    return field


@given(queue=_TABLES, exchange=_TABLES, binding=_TABLES)
@example({"x": Field("T", 2**64 - 1)}, {"x": Field("T", 2**63)}, {"x": Field("T", 2**64 - 1)})
@example({"x": _nested("F" * (DEPTH_MAX - 1))}, {"x": _nested("A" * (DEPTH_MAX - 1))}, {"x": _nested("AF" * 31)})
@example({"x": Field("d", float("nan"))}, {"x": Field("f", float("-inf"))}, {"\udcff" * 255: Field("x", b"\xff")})
def test_whatever_clients_declare_is_exported_and_taken_in(
    queue: FieldTable, exchange: FieldTable, binding: FieldTable
) -> None:
    """Arguments of every type and depth that a frame can bring: what is in a file of ours is no fault of it."""
    for table in (queue, exchange, binding):
        assert decode_table(encode_table(table))[0].keys() == table.keys()  # else no client could send it
    ours = table_for()
    vhost = ours.broker.virtual_hosts["/"]
    for act in (
        lambda: vhost.queues.declare("q", client=None, arguments=queue),
        lambda: vhost.exchanges.declare("e", "headers", arguments=exchange),
        lambda: vhost.bindings.add("queue", "q", "e", "key", binding),
    ):
        try:
            act()
        except EngineError:
            pass  # so a client would hear
    exported = json.loads(json.dumps(finished(export_steps(ours.broker))), parse_constant=_no_constant)
    json.dumps(exported, ensure_ascii=False).encode()
    assert finished(export_steps(imported(exported).broker)) == exported


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def test_a_deep_file_is_refused() -> None:
    """Arguments in each other without end."""
    deep: Any = 1
    for _ in range(200):
        deep = {"x": deep}
    with pytest.raises(ValueError):
        table_of_json({"x": deep})


def test_a_number_above_63_bits_is_a_timestamp() -> None:
    """AMQP has no other type for it, so that the timestamps of a declared table come back from its definitions."""
    assert table_of_json({"x-max-length": 2**63}) == {"x-max-length": Field("T", 2**63)}


def test_the_spec_tables_users_are_sound() -> None:
    """tests/spec/definitions.json, which RabbitMQ takes too."""
    document = json.loads((Path(__file__).parents[1] / "spec" / "definitions.json").read_text())
    assert imported(document).broker.users.find("no-write-p.m.q") is not None


@pytest.mark.peer
@pytest.mark.skipif(peers.find_rabbitmq() is None, reason=peers.WITHOUT_RABBITMQ)
def test_rabbitmq_takes_our_export_and_we_take_its(tmp_path: Path) -> None:
    """There and back through a real RabbitMQ; sections that both know are the same afterwards."""
    document = copy.deepcopy(RABBIT)
    document["parameters"] = document["parameters"][:1]  # the other one belongs to a plug-in
    document["bindings"][1]["arguments"] = {"x-match": "all", "kind": "order", "size": 5}
    ours = finished(export_steps(imported(document).broker))
    (tmp_path / "ours.json").write_text(json.dumps(ours))
    with peers.rabbitmq(config=f"load_definitions = {tmp_path / 'ours.json'}\n") as peer:
        peers.rabbitmqctl(peer, "export_definitions", str(tmp_path / "theirs.json"))
    table = table_for()
    answer = finished(import_steps(table.broker, json.loads((tmp_path / "theirs.json").read_text())))
    assert (answer["faults"], answer["remarks"]) == ([], [])
    theirs = finished(export_steps(table.broker))
    ours["queues"] = [queue for queue in ours["queues"] if queue["durable"]]  # RabbitMQ exports no others
    same = ("users", "vhosts", "permissions", "topic_permissions", "policies", "queues", "exchanges", "bindings")
    for section in same:
        assert _sorted(theirs[section]) == _sorted(ours[section]), section
    assert ours["parameters"][0] in theirs["parameters"]


def _sorted(entries: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in entries)


def test_a_large_document_is_imported_in_steps() -> None:
    """Others have their turns in between, the answer comes when all is there; counted in objects, never in time."""
    count = 8 * OBJECTS_A_STEP
    names = [f"q{number}" for number in range(count)]
    document = {
        "queues": [{"name": name, "vhost": "/", "durable": True} for name in names],
        "bindings": [
            {"source": "amq.topic", "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": "#"}
            for name in names
        ],
    }
    table = ControlTable()
    pair = Pair(broker={"services": {EXCHANGE: table.handle}})
    table.operator.attach(pair.broker)
    peer = pair.open()
    queue = peer.call(1, C.Queue.Declare, queue="", exclusive=True).queue
    peer.call(1, C.Basic.Consume, queue=queue, consumer_tag="t", no_ack=True)
    vhost = pair.broker.virtual_hosts["/"]
    request = {"command": "definitions", "arguments": {"action": "import", "definitions": document}}
    properties = {"reply_to": queue}
    handle_bytes(peer.session, publish(1, "", json.dumps(request).encode(), exchange=EXCHANGE, **properties))
    assert len(vhost.queues) == 1
    done = [1]
    while pair.broker.end_turn():
        done.append(len(vhost.queues) + vhost.bindings.count)
    taken = [now - before for before, now in pairwise(done)]
    assert max(taken) <= 2 * OBJECTS_A_STEP  # a queue counts twice: it is bound to the default exchange, too
    assert len(vhost.queues) == count + 1
    peer._flush()
    (delivered,) = peer.take()
    assert delivered.body is not None
    assert json.loads(delivered.body)["result"]["imported"]["bindings"] == count


#: A turn that imports costs no more, in units of effort: a step, and one object more.
IMPORT_TURN_MAX = 6_000
NAME = "a.long.name.of.a.queue." + "x" * 220


def _long_documents() -> dict[str, dict[str, Any]]:
    def queues(count: int) -> list[dict[str, Any]]:
        return [{"name": f"{NAME}{number}", "vhost": "/", "durable": True} for number in range(count)]

    def policies(count: int, pattern: str) -> list[dict[str, Any]]:
        return [
            {"name": f"p{n}", "vhost": "/", "pattern": pattern.format(n), "definition": {"max-length": 9}}
            for n in range(count)
        ]

    many = [f"user{number}" for number in range(300)]
    return {
        "long names beside policies": {"queues": queues(60), "policies": policies(100, "^team{}\\.")},
        "patterns for the automaton": {"queues": queues(60), "policies": policies(30, "^(a+b?)+.*(a|b)+c{}$")},
        "exchanges": {
            "exchanges": [
                {"name": one["name"], "vhost": "/", "type": "topic", "durable": True, "internal": False}
                for one in queues(60)
            ],
            "policies": policies(401, "^.*[a-z]-{}$"),
        },
        "long patterns": {"policies": policies(40, "^" + "x" * 800 + "{}")},
        "users": {
            "users": [{"name": name, "password_hash": "", "tags": ""} for name in many],
            "permissions": [
                {"user": name, "vhost": "/", "configure": f"^{name}-.*", "write": ".*", "read": f"^{name}|^all"}
                for name in many
            ],
        },
    }


def test_a_virtual_host_that_is_deleted_during_an_import_stays_deleted() -> None:
    """The objects of others are declared."""
    broker = Pair().broker
    names = ("gone", "stays")
    queues = [{"name": f"q{number}", "vhost": vhost} for vhost in names for number in range(3 * OBJECTS_A_STEP)]
    taken = import_steps(broker, {"vhosts": [{"name": name} for name in names], "queues": queues})
    while "gone" not in broker.virtual_hosts or not broker.virtual_hosts["gone"].queues:
        next(taken)
    broker.virtual_hosts.delete("gone")
    assert finished(taken)["faults"] == []
    assert "gone" not in broker.virtual_hosts
    assert len(broker.virtual_hosts["stays"].queues) == 3 * OBJECTS_A_STEP


@pytest.mark.parametrize("what", _long_documents())
def test_steps_of_an_import_are_cut_by_what_they_cost(what: str) -> None:
    """Not by the number of objects alone: names may be long, policies many, and patterns large."""
    pair = Pair()
    document = {"vhosts": [{"name": "/"}], **_long_documents()[what]}
    reader = DefinitionsReader(pair.broker, document)
    costs: list[int] = []

    def measured(taken: Iterator[None], context: BrokerContext) -> None:
        spent = context.turn.effort
        for _ in taken:
            costs.append(context.turn.effort - spent)
            while pair.broker.end_turn():
                pass
            spent = context.turn.effort

    measured(reader.plan(), reader.trial.context)
    measured(import_steps(pair.broker, document), pair.broker.context)
    assert max(costs) <= IMPORT_TURN_MAX
    assert len(costs) >= 6


#: Lines of Python in a step of an import: some hundred objects, or what a large one needs.
STEP_LINES_MAX = 40_000
MANY = 2_000


def _many_of_a_section() -> dict[str, dict[str, Any]]:
    vhosts = [{"name": f"v{number}"} for number in range(400)]
    user = {"name": "u", "password_hash": "", "tags": ""}
    return {
        "virtual hosts": {"vhosts": vhosts},
        "their descriptions": {"vhosts": [{**one, "description": "x", "tags": ["a"]} for one in vhosts]},
        "their limits": {"vhosts": [{**one, "limits": {"max-queues": 5}} for one in vhosts]},
        "parameters": {
            "parameters": [
                {"vhost": "/", "component": "shovel", "name": f"s{number}", "value": {"a": 1}} for number in range(900)
            ]
        },
        "topic permissions of one user": {
            "users": [user],
            "permissions": [{"user": "u", "vhost": "/", "configure": "", "write": "", "read": ""}],
            "topic_permissions": [
                {"user": "u", "vhost": "/", "exchange": f"e{number}", "write": f"^a{number}", "read": "^{username}"}
                for number in range(MANY)
            ],
        },
        "those that wait for permissions": {
            "users": [user],
            "topic_permissions": [
                {"user": "u", "vhost": "/", "exchange": f"e{number}", "write": f"^a{number}", "read": ""}
                for number in range(MANY)
            ],
        },
    }


@pytest.mark.parametrize("what", _many_of_a_section())
def test_no_section_is_imported_or_exported_in_one_step(what: str) -> None:
    """Whatever there is much of: a step is a part of it, or does little with each."""
    broker = Pair().broker
    document = {"vhosts": [{"name": "/"}], **_many_of_a_section()[what]}
    for taken in (import_steps(broker, document), export_steps(broker)):
        lines = [0]
        is_over = False

        def step(taken: Iterator[None] = taken) -> None:
            nonlocal is_over
            is_over = next(taken, "over") == "over"

        while not is_over:
            lines.append(steps(step))
        assert max(lines) <= STEP_LINES_MAX


def test_the_first_command_imports_a_part_in_a_turn() -> None:
    """What serves commands takes 20 ms to import: each module is a step, and the answer comes behind them."""
    table = ControlTable()
    broker = Broker(ManualClock())
    table.operator.attach(broker)
    taken = table.steps("status")
    assert sum(1 for _ in taken) >= len(IMPORT_STEPS)
    assert sum(1 for _ in table.steps("status")) < len(IMPORT_STEPS)


class CountedName(str):
    """A name that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        CountedName.hashed += 1
        return super().__hash__()


def test_a_binding_does_not_look_at_all_queues() -> None:
    """The work for the bindings of a document does not depend on how many queues the broker has."""
    broker = Pair().broker
    for number in range(MANY):
        broker.virtual_hosts["/"].queues.create(CountedName(f"q{number}"), is_auto_created=False)
    CountedName.hashed = 0
    ends = {"source": "amq.direct", "destination_type": "queue", "routing_key": "k"}
    document = {"bindings": [{"vhost": "/", "destination": f"q{number}", **ends} for number in range(20)]}
    assert not finished(import_steps(broker, document))["faults"]
    assert broker.virtual_hosts["/"].bindings.count == 20
    assert CountedName.hashed < MANY


def test_a_wrong_virtual_host_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description that is one parameter too many is a fault of its entry; the rest of the document is imported."""
    monkeypatch.setattr("leveret.operator.definitions_reader.KEPT_MAX", 1)
    broker = Pair().broker
    hosts = [{"name": name, "description": name, "default_queue_type": "quorum"} for name in ("/", "one", "two")]
    done = finished(import_steps(broker, {"vhosts": hosts, "global_parameters": [{"name": "g", "value": 1}]}))
    wrong = ("vhosts[1]", "vhosts[2]", "global_parameters[0]")
    assert done["faults"] == [f"{where}: no more than 1 parameters are kept" for where in wrong]
    assert done["imported"]["vhosts"] == 1
    assert list(broker.virtual_hosts) == ["/"]


def test_users_of_a_document_are_not_looked_up_for_each_other() -> None:
    """Twice the users are twice the work."""

    def work(count: int) -> int:
        broker = Pair().broker
        names = [f"user{number}" for number in range(count)]
        document = {
            "users": [{"name": name, "password_hash": "", "tags": ""} for name in names],
            "permissions": [{"user": name, "vhost": "/", "configure": "", "write": "", "read": ""} for name in names],
        }
        return steps(lambda: finished(import_steps(broker, document)))

    work(10)
    few = work(100)
    assert work(400) <= 5 * few


@pytest.mark.parametrize("body", [b'{"command": "\\ud800"}', b'{"command": "\xed\xa0\x80"}'], ids=["escaped", "octets"])
def test_a_lone_surrogate_is_no_text(body: bytes) -> None:
    """However it is written."""
    table = ControlTable()
    table.operator.attach(Broker(ManualClock()))
    assert finished(table._answer(body)) == {"ok": False, "error": "the request is not JSON"}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" * 31, "1" * 5000])
def test_a_request_has_only_numbers_that_json_has(number: str) -> None:
    """Any other would be in lists that no client can read."""
    table = ControlTable()
    table.operator.attach(Broker(ManualClock()))
    body = f'{{"command": "set-parameter", "arguments": {{"value": {number}}}}}'
    assert finished(table._answer(body.encode())) == {"ok": False, "error": "the request is not JSON"}
