"""Users, policies, limits and parameters as the journal keeps them: what is written is read back."""

import json
import time
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from recorded_broker import RecordedBroker

from leveret.engine import (
    Grant,
    Permissions,
    TopicPermission,
    User,
    VirtualHostLimits,
    hash_password,
    read_password_hash,
)
from leveret.journal.format.errors import BadRecord
from leveret.journal.format.record import OPERATOR_POLICY, POLICY
from leveret.journal.recording.access_records import (
    fields_without_secrets,
    limits_octets,
    limits_of,
    parameter_name,
    parameter_names,
    parameter_octets,
    parameter_of,
    policy_octets,
    policy_of,
    user_octets,
    user_of,
)
from leveret.settings import Policies, Policy, make_policy

TOPICS = MappingProxyType({"amq.topic": TopicPermission("^a", "^b")})
GRANT = Grant("^c", ".*", "", TOPICS)


def test_a_user_comes_back() -> None:
    """With the order of the tags, and topic permissions in force and waiting."""
    permissions = MappingProxyType({"/": Permissions(GRANT, user="a", vhost="/")})
    waiting = MappingProxyType({"other": TOPICS})
    user = User("a", tags=("b", "a"), permissions=permissions, max_channels=3, topics_before_permissions=waiting)
    found = user_of("a", user_octets(user))
    assert (found.tags, found.topics_before_permissions, found.max_channels) == (("b", "a"), waiting, 3)
    assert found.permissions is not None and found.permissions["/"].grant == GRANT


def test_a_user_of_an_older_journal() -> None:
    """Nothing waits in it."""
    octets = user_octets(User("a")).replace(b'"waiting_topics"', b'"unknown"')
    assert b"waiting_topics" not in octets
    assert user_of("a", octets) == User("a")


@pytest.mark.parametrize("wrong", [b"[]", b'{"v": 5}', b'{"v": {"e": ["w"]}}', b'{"v": {"e": "wrr"}}'])
def test_waiting_topics_that_are_none(wrong: bytes) -> None:
    """The record is bad, and nothing else."""
    octets = user_octets(User("a"))
    assert b'"waiting_topics":{}' in octets.replace(b": ", b":")
    with pytest.raises(BadRecord):
        user_of("a", octets.replace(b": ", b":").replace(b'"waiting_topics":{}', b'"waiting_topics":' + wrong))


#: What a user may have beside its name.
FIELDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a password": {"password": hash_password("secret", salt=b"salt")},
    "a password of an older kind": {
        "password": read_password_hash("AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "rabbit_password_hashing_md5")
    },
    "tags": {"tags": ("management", "administrator")},
    "loopback": {"loopback_only": True},
    "connections": {"max_connections": 0},
    "channels": {"max_channels": 5},
    "no permissions": {"permissions": MappingProxyType({})},
    "permissions": {
        "permissions": MappingProxyType(
            {
                "/": Permissions(GRANT, user="a", vhost="/"),
                "Ä": Permissions(Grant("c", "w", "r"), user="a", vhost="Ä"),
            }
        )
    },
    "topics before permissions": {
        "topics_before_permissions": MappingProxyType({"/": TOPICS, "other": MappingProxyType({})})
    },
}


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_of_a_user_comes_back(name: str) -> None:
    """And nothing beside it; what people may read of it is all but the password."""
    user = User("a", **FIELDS[name])
    octets = user_octets(user)
    found = user_of("a", octets)
    for one in fields(User):
        assert getattr(found, one.name) == getattr(user, one.name) or one.name == "permissions", one.name
    grants = [
        None if one.permissions is None else {vhost: of.grant for vhost, of in one.permissions.items()}
        for one in (found, user)
    ]
    assert grants[0] == grants[1]
    assert user_octets(found) == octets
    shown = fields_without_secrets(octets)
    assert "password_hash" not in shown and shown["tags"] == list(user.tags)
    version = {"name": "a", "before": None, "after": {"password_hash": user.password.text(), "tags": []}}
    stored = parameter_octets(version)
    assert parameter_of(stored) == version
    assert fields_without_secrets(stored) == {"value": {**version, "after": {"tags": []}}}


@pytest.mark.parametrize(
    "uri, shown",
    [
        ("amqp://ann:opensesame@rabbit/v", "amqp://ann:***@rabbit/v"),
        ("amqps://ann:a/b@c:d@rabbit:5671/%2F?x=1", "amqps://ann:***@rabbit:5671/%2F?x=1"),
        ("amqp://:opensesame@", "amqp://:***@"),
        ("amqp://ann@rabbit:5672", "amqp://ann@rabbit:5672"),
        ("amqp://", "amqp://"),
        ("ann:opensesame@rabbit", "ann:opensesame@rabbit"),  # no URI
        ("amqp://me@example.com:opensesame@rabbit", "amqp://me@example.com:***@rabbit"),
        ("amqp://a/nn:opensesame@rabbit", "amqp://a/nn:***@rabbit"),
        ("amqp://ann:open sesame@rabbit", "amqp://ann:***@rabbit"),
        ("amqp://h:5672/q amqp://ann:opensesame@rabbit", "amqp://h:***@rabbit"),
        ("amqp://ann:open@sesame/v@rabbit", "amqp://ann:***@rabbit"),
        ("amqp://rabbit:5672/queue@x", "amqp://rabbit:5672/queue@x"),
        ("amqp://rabbit/queue@x", "amqp://rabbit/queue@x"),
        ("amqps://a:b@c?password=opensesame&x=1", "amqps://a:***@c?password=***&x=1"),
        ("amqps://c?x=1&password=open@sesame", "amqps://c?x=1&password=***@"),
        ("amqps://a:b@c?password=open@sesame", "amqps://a:***@"),
        ("amqps://a:open?password=sesame@c", "amqps://a:***@"),
        (["amqp://a:b@c", "amqp://d"], ["amqp://a:***@c", "amqp://d"]),
    ],
)
def test_no_password_of_a_uri_is_shown(uri: object, shown: object) -> None:
    """Of federation upstreams and shovels, which are parameters; `journal cat` is not for administrators alone."""
    octets = parameter_octets({"src-uri": uri, "src-queue": "q"})
    assert fields_without_secrets(octets) == {"value": {"src-uri": shown, "src-queue": "q"}}


@pytest.mark.parametrize("part", ["a://x:", "a://x:y@", "?password=", "h:1/", "@:"])
def test_a_long_uri_is_shown_in_linear_time(part: str) -> None:
    """Eight times the octets: quadratic time would be 64 times as long."""

    def needed_s(size: int) -> float:
        octets, times = parameter_octets("a://" + part * (size // len(part))), []
        for _ in range(5):
            began = time.process_time()
            fields_without_secrets(octets)
            times.append(time.process_time() - began)
        return min(times)

    assert needed_s(160_000) < 24 * needed_s(20_000) + 0.01


@pytest.mark.parametrize("is_operator", [False, True])
def test_a_policy_comes_back(is_operator: bool) -> None:
    """Pattern, kinds of objects, priority, definition; and whose it is."""
    definition = {"max-length": 5} if is_operator else {"max-length": 5, "dead-letter-exchange": "Ä"}
    policy = make_policy("p", "/", "^a", definition, apply_to="queues", priority=-3, is_operator=is_operator)
    what = OPERATOR_POLICY if is_operator else POLICY
    assert policy_of(what, "/", "p", policy_octets(policy)) == policy
    accepted = make_policy("p", "/", "", {"ha-mode": "all", "ha-params": 2}, is_operator=is_operator, is_stored=True)
    assert policy_of(what, "/", "p", policy_octets(accepted)) == accepted  # by an earlier release
    for wrong in (b"[]", b"{}", b"\xff", b'{"pattern": "a"}'):
        with pytest.raises(BadRecord):
            policy_of(what, "/", "p", wrong)


#: Definitions that earlier releases accepted, as operator policies too, and what they are now.
ACCEPTED_BEFORE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"queue-version": 2.0, "max-length": 5}, {"queue-version": 2, "max-length": 5}),
    ({"queue-version": 1.0}, {"queue-version": 1}),
    ({"queue-version": 2}, {"queue-version": 2}),
    *(
        (definition, definition)
        for definition in (
            {"ha-mode": "all", "ha-params": 2},
            {"ha-mode": "nodes", "ha-params": []},
            {"ha-mode": "exactly", "ha-params": None},
            {"ha-params": {"a": [None]}},
            {"ha-sync-mode": "x"},
        )
    ),
]


@pytest.mark.parametrize("is_operator", [False, True])
@pytest.mark.parametrize("stored, now", ACCEPTED_BEFORE)
def test_a_policy_that_an_earlier_release_accepted_is_read(
    stored: dict[str, Any], now: dict[str, Any], is_operator: bool
) -> None:
    """A broker whose journal has it starts, although the policy would be refused now."""
    record = {"pattern": "^a", "apply-to": "all", "priority": 0, "definition": stored}
    found = policy_of(OPERATOR_POLICY if is_operator else POLICY, "/", "p", json.dumps(record).encode())
    assert found.definition == now and list(map(type, found.definition.values())) == list(map(type, now.values()))


@pytest.mark.parametrize("queue_version", [3.0, 1.5, True, "2"])
def test_a_policy_that_no_release_accepted_is_a_bad_record(queue_version: object) -> None:
    """Of queue-version 1 and 2 alone another type was taken."""
    record = {"pattern": "", "apply-to": "all", "priority": 0, "definition": {"queue-version": queue_version}}
    with pytest.raises(BadRecord):
        policy_of(POLICY, "/", "p", json.dumps(record).encode())


#: Values of parameters that are refused now, or were refused by plug-ins of RabbitMQ.
PARAMETERS_BEFORE: dict[tuple[str, str, str], object] = {
    ("/", "federation-upstream", "list"): [],
    ("/", "federation-upstream", "unknown"): {"uri": "amqp://a", "unknown": 1},
    ("/", "shovel", "list"): ["amqp://a"],
    ("/", "shovel", "null"): None,
    ("/", "", "about"): {"description": None, "tags": None},
    ("", "", "cluster_name"): 5,
}


def test_a_broker_starts_with_all_that_an_earlier_release_stored(tmp_path: Path) -> None:
    """Policies, operator policies, parameters and limits of its journal, which would be refused now."""
    before = RecordedBroker(tmp_path / "j")
    policies = [
        Policy(f"p{index}", "/", "", stored, is_operator=is_operator)
        for index, (stored, _) in enumerate(ACCEPTED_BEFORE)
        for is_operator in (False, True)
    ]
    before.broker.reloading.replace_policies(Policies(policies))
    for identity, value in PARAMETERS_BEFORE.items():
        before.broker.parameters.set(identity, value)
    before.broker.virtual_hosts.limit(before.vhost, VirtualHostLimits(max_queues=-5))
    before.tick()
    before.close()
    after = RecordedBroker(tmp_path / "j")
    assert list(after.broker.context.policies) == list(before.broker.context.policies)
    assert {identity: after.broker.parameters.get(identity) for identity in PARAMETERS_BEFORE} == PARAMETERS_BEFORE
    assert after.vhost.context.limits == VirtualHostLimits(max_queues=-5)
    after.close()


def test_limits_of_earlier_releases_are_read() -> None:
    """Any integers, and records without the later key."""
    assert limits_of(b'{"max-connections": -5, "max-queues": 0}') == VirtualHostLimits(-5, 0)
    assert limits_of(b'{"max-queues": null}') == VirtualHostLimits()
    assert limits_of(b"{}") == VirtualHostLimits()


@pytest.mark.parametrize(
    "limits",
    [
        VirtualHostLimits(),
        VirtualHostLimits(max_connections=0),
        VirtualHostLimits(max_queues=7),
        VirtualHostLimits(3, 4, "quorum"),
        VirtualHostLimits(default_queue_type="stream"),
    ],
)
def test_limits_come_back(limits: VirtualHostLimits) -> None:
    """Those of the configuration are kept there."""
    assert limits_of(limits_octets(limits)) == limits
    assert limits_octets(replace(limits, is_configured=True)) == b""
    assert (limits_octets(limits) == b"") is (limits == VirtualHostLimits())


@pytest.mark.parametrize("value", [None, 0, "", "Ä\ud800", [1, {"a": None}], {"value": {}}, 1.5, True])
def test_a_parameter_comes_back(value: object) -> None:
    """Any JSON, also half a character; under a name of any characters."""
    assert parameter_of(parameter_octets(value)) == value
    for component, name in (("a", "b"), ("", ""), ('"', "[,]"), ("Ä", "\ud800")):
        assert parameter_names(parameter_name(component, name)) == (component, name)
    for wrong in ("", "a", "[]", '["a"]', '["a", 1]', '[1, "a"]', '["a", "b", "c"]', "null", "[" * 100_000):
        with pytest.raises(BadRecord):
            parameter_names(wrong)
