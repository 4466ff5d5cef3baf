"""What a reload would change: nothing of it is left out, and nothing is made up. Address-settings page 3.8."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import pytest

from leveret.settings import (
    Configuration,
    SettingsRepository,
    SystemUsage,
    Wildcards,
    entry,
    load_configuration,
    make_policy,
)
from leveret.settings.addresses.destinations import QUEUE_ENTRY, TOPIC_ENTRY, WILDCARDS, DestinationPolicies
from leveret.settings.addresses.entries import MATCH
from leveret.settings.declared.declarations import (
    Divert,
    ExchangeDeclaration,
    LimitsDeclaration,
    PermissionDeclaration,
    QueueDeclaration,
    TopicPermissionDeclaration,
    UserDeclaration,
)
from leveret.settings.difference import differences
from leveret.settings.lifetime import ARRIVAL, AT_CONNECTION, AT_CREATION, LIVE, NEVER, RESTART, Lifetime
from leveret.settings.rows.address_settings import SETTINGS, Setting
from leveret.settings.rows.broker_keys import KEYS
from leveret.settings.rows.queue_attributes import LIVE_ARGUMENTS, QUEUE_ARGUMENTS


def with_entries(*entries: Any, **more: Any) -> Configuration:
    return Configuration(repository=SettingsRepository(entries, **more))


def with_queue(**changed: Any) -> Configuration:
    return Configuration(queues=(replace(QueueDeclaration("q", "q"), **changed),))


def with_user(**changed: Any) -> Configuration:
    return Configuration(users=(replace(UserDeclaration("u", password="p"), **changed),))


def with_policy(definition: dict[str, object], **options: Any) -> Configuration:
    return Configuration(policies=(make_policy("p", "/", "^q", definition, **options),))


#: Its table of limits is missing.
UNLIMITED_HOST = Configuration(vhosts=("v",))


def with_limits(**limits: Any) -> Configuration:
    return Configuration(vhosts=("v",), limits=MappingProxyType({"v": LimitsDeclaration(**limits)}))


def with_divert(**changed: Any) -> Configuration:
    return Configuration(diverts=(replace(Divert("d", "a", ("b",)), **changed),))


def told(old: Configuration, new: Configuration) -> list[tuple[str, str, Lifetime | None]]:
    return [(one.what, one.how, one.acts) for one in differences(old, new)]


def values_of(field: Setting) -> tuple[Any, Any]:
    default = field.default
    if isinstance(default, bool):
        return False, True
    if isinstance(default, float):
        return 0.5, 0.25
    return ("one", "two") if isinstance(default, str) else (7, 11)


def test_entries_of_one_name_are_told_apart() -> None:
    """An address-setting, and the destination policies of a queue and of a topic."""

    def of(match: int, queue: int, topic: int) -> Configuration:
        one, *others = (
            replace(entry("a", None, WILDCARDS, redelivery_delay_ms=value), kind=kind)
            for kind, value in ((MATCH, match), (QUEUE_ENTRY, queue), (TOPIC_ENTRY, topic))
        )
        policies = DestinationPolicies(others[:1], others[1:])
        return with_entries(one, destinations=policies)

    assert [what for what, *_ in told(of(1, 1, 1), of(2, 1, 1))] == ["match 'a'"]
    assert [what for what, *_ in told(of(1, 1, 1), of(1, 2, 1))] == ["queue policy 'a'"]
    assert [what for what, *_ in told(of(1, 1, 1), of(1, 1, 2))] == ["topic policy 'a'"]


@pytest.mark.parametrize("field", SETTINGS, ids=lambda field: field.key)
def test_each_key_of_an_entry(field: Setting) -> None:
    """Set, changed, unset, in every kind of entry: its name, both values, and when it takes effect."""
    one, other = values_of(field)
    for vhost, at in ((None, ""), ("v", " in vhost 'v'")):
        with_one, with_other, without = (
            with_entries(entry("a.#", vhost, **said)) for said in ({field.attribute: one}, {field.attribute: other}, {})
        )
        assert told(with_one, with_one) == []
        ((what, how, acts),) = told(with_one, with_other)
        assert (what, acts) == (f"match 'a.#'{at}", field.acts)
        assert how.startswith(f"{field.key}: ") and how.partition(" -> ")[0] != f"{field.key}: unset"
        assert told(without, with_one)[0][1].startswith(f"{field.key}: unset -> ")
        assert told(with_one, without)[0][1].endswith(" -> unset")
        ((what, how, acts),) = told(Configuration(), with_one)
        assert (what, acts) == (f"match 'a.#'{at}", None) and how.startswith(f"added: {field.key} ")
        ((what, how, acts),) = told(with_one, Configuration())
        assert (what, acts) == (f"match 'a.#'{at}", None) and how.startswith(f"removed: {field.key} ")
    kinds = (
        {"queues": [entry("a.>", None, WILDCARDS, **{field.attribute: one})]},
        {"topics": [entry("a.>", None, WILDCARDS, **{field.attribute: one})]},
        {"default": entry("#", **{field.attribute: one})},
    )
    for said in kinds:
        policies: Any = DestinationPolicies(**said)  # type: ignore[arg-type]
        assert len(told(Configuration(), with_entries(destinations=policies))) == 1


@pytest.mark.parametrize("argument", QUEUE_ARGUMENTS)
def test_each_argument_of_a_queue(argument: str) -> None:
    """One that can change on a queue that exists takes effect; another one needs a new queue."""
    row = QUEUE_ARGUMENTS[argument]
    (field,) = (one for one in SETTINGS if one.attribute == row.attribute)
    one, other = values_of(field)
    old, new = (with_queue(arguments=MappingProxyType({argument: value})) for value in (one, other))
    changes = {how.partition(":")[0]: acts for what, how, acts in told(old, new) if what == "queue 'q'"}
    assert changes[field.key] is (LIVE if argument in LIVE_ARGUMENTS else NEVER)


EXCHANGE = Configuration(exchanges=(ExchangeDeclaration("x"),))

#: Of what, from what, to what; how it is told, and when it takes effect.
CHANGES: list[tuple[str, Configuration, Configuration, str, Lifetime | None]] = [
    ("[system-usage]", Configuration(), Configuration(system_usage=SystemUsage(1, 0, 0)), "added", LIVE),
    ("[wildcard-addresses]", with_entries(), with_entries(wildcards=Wildcards("/")), "", LIVE),
    ("queue 'q'", Configuration(), with_queue(), "declared", LIVE),
    ("queue 'q'", with_queue(), Configuration(), "no longer declared: stays", None),
    (
        "queue 'q'",
        with_queue(),
        with_entries(entry("q", config_delete_queues="FORCE")),
        "no longer declared: del",
        LIVE,
    ),
    ("queue 'q'", with_queue(), with_queue(durable=False), "durable", NEVER),
    ("queue 'q'", with_queue(), with_queue(is_enabled=False), "enabled", LIVE),
    ("queue 'q'", with_queue(), with_queue(address="other"), "address", NEVER),
    ("queue 'q'", with_queue(), with_queue(routing_type="MULTICAST"), "routing-type", LIVE),
    ("queue 'q'", with_queue(), with_queue(arguments=MappingProxyType({"x-other": 1})), "x-other: unset -> 1", NEVER),
    (
        "queue 'q'",
        with_queue(arguments=MappingProxyType({"x-selector": "a = 1"})),
        with_queue(arguments=MappingProxyType({"x-selector": "a = 2"})),
        'x-selector: "a = 1" -> "a = 2"',
        LIVE,
    ),
    (
        "queue 'q'",
        with_queue(),
        with_queue(address="other", arguments=MappingProxyType({"x-address": "other"})),
        "address",
        NEVER,
    ),
    (
        "queue 'q'",
        with_queue(arguments=MappingProxyType({"x-max-length": 1})),
        with_queue(arguments=MappingProxyType({"x-max-length": 2})),
        "x-max-length: 1 -> 2",
        NEVER,
    ),
    ("queue 'q' in vhost 'v'", Configuration(), with_queue(vhost="v"), "declared", LIVE),
    ("exchange 'x'", Configuration(), EXCHANGE, "declared", LIVE),
    ("exchange 'x'", EXCHANGE, Configuration(), "no longer declared", None),
    ("exchange 'x'", EXCHANGE, with_entries(entry("x", config_delete_addresses="FORCE")), "no longer decl", LIVE),
    (
        "exchange 'x'",
        EXCHANGE,
        with_entries(entry("x", config_delete_queues="FORCE")),
        "no longer declared: stays",
        None,
    ),
    (
        "exchange 'x'",
        EXCHANGE,
        Configuration(exchanges=(ExchangeDeclaration("x", type="topic"),)),
        'type: "fanout" -> "topic": stays as it is',
        None,
    ),
    ("divert 'd'", Configuration(), with_divert(), "declared", ARRIVAL),
    ("divert 'd'", with_divert(), Configuration(), "no longer declared", None),
    ("divert 'd'", with_divert(), with_divert(forwarding_addresses=("b", "c")), "a to b (STRIP) -> a to b, c", ARRIVAL),
    ("divert 'd'", with_divert(), with_divert(is_exclusive=True), "a to b (STRIP) -> exclusive", ARRIVAL),
    ("divert 'd'", with_divert(), with_divert(filter="x = 1"), "a to b (STRIP) -> a to b (STRIP, if x = 1)", ARRIVAL),
    ("divert 'd'", with_divert(), with_divert(routing_name="r"), "a to b (STRIP) -> a to b (STRIP, as 'r')", ARRIVAL),
    ("divert 'd'", with_divert(), with_entries(entry("a", config_delete_diverts="FORCE")), "no longer decl", ARRIVAL),
    ("divert 'd'", with_divert(), with_entries(entry("d", config_delete_diverts="FORCE")), "no longer decl", None),
    ("virtual host 'v'", Configuration(), Configuration(vhosts=("v",)), "declared", LIVE),
    ("virtual host 'v'", Configuration(vhosts=("v",)), Configuration(), "no longer declared: stays", None),
    ("virtual host 'v'", with_limits(), with_limits(max_connections=5), "max-connections: unset -> 5", AT_CONNECTION),
    ("virtual host 'v'", with_limits(max_queues=5), with_limits(), "max-queues: 5 -> unset", AT_CREATION),
    (
        "virtual host 'v'",
        Configuration(vhosts=("v",)),
        with_limits(max_queues=5),
        "max-queues: unset -> 5",
        AT_CREATION,
    ),
    (
        "virtual host 'v'",
        with_limits(max_queues=5),
        Configuration(vhosts=("v",)),
        "max-queues: 5 -> unset",
        AT_CREATION,
    ),
    ("virtual host 'v'", with_limits(), with_limits(default_queue_type="quorum"), "default-queue-type", AT_CREATION),
    ("user 'u'", with_user(), with_user(password="other"), "another password", AT_CONNECTION),
    ("user 'u'", with_user(), with_user(password="", password_hash="h"), "another password", AT_CONNECTION),
    ("user 'u'", with_user(password_hash="g"), with_user(password_hash="h"), "another password", AT_CONNECTION),
    (
        "user 'u'",
        with_user(password="", password_hash="h"),
        with_user(password="", password_hash="h", hashing_algorithm="rabbit_password_hashing_sha512"),
        "another password",
        AT_CONNECTION,
    ),
    ("user 'u'", with_user(), with_user(tags=frozenset({"monitoring"})), "tags none", LIVE),
    ("user 'u'", with_user(), with_user(permissions=(PermissionDeclaration("/", ".*"),)), "tags none", LIVE),
    ("user 'u'", with_user(), with_user(topic_permissions=(TopicPermissionDeclaration("/", "t"),)), "topic perm", LIVE),
    (
        "user 'u'",
        with_user(topic_permissions=(TopicPermissionDeclaration("/", "t"),)),
        with_user(topic_permissions=(TopicPermissionDeclaration("/", "other"),)),
        "topic permissions / t",
        LIVE,
    ),
    ("user 'u'", with_user(), with_user(loopback_only=True), "loopback-only: false -> true", AT_CONNECTION),
    ("user 'u'", with_user(), with_user(max_connections=3), "max-connections: unset -> 3", AT_CONNECTION),
    ("user 'u'", with_user(max_channels=3), with_user(max_channels=2), "max-channels: 3 -> 2", LIVE),
    ("policy 'p'", Configuration(), with_policy({"max-length": 1}), "declared", LIVE),
    ("policy 'p'", with_policy({"max-length": 1}), Configuration(), "no longer declared: cleared", LIVE),
    ("policy 'p'", with_policy({"max-length": 1}), with_policy({"max-length": 2}), "'^q' on all, priority 0", LIVE),
    ("policy 'p'", with_policy({"max-length": 1}), with_policy({"max-length": 1}, priority=2), "'^q' on all", LIVE),
    (
        "policy 'p'",
        with_policy({"max-length": 1}),
        with_policy({"max-length": 1}, apply_to="queues"),
        "'^q' on all",
        LIVE,
    ),
    ("operator policy 'p'", Configuration(), with_policy({"max-length": 1}, is_operator=True), "declared", LIVE),
    ("operator policy 'p'", with_policy({"expires": 1}, is_operator=True), Configuration(), "no longer declared", LIVE),
]


def test_no_argument_changes_at_once_in_a_queue_of_another_type() -> None:
    """It needs a new queue, also for arguments that could change on one of the same type."""
    old = with_queue(arguments=MappingProxyType({"x-redelivery-delay": 1}))
    new = with_queue(arguments=MappingProxyType({"x-redelivery-delay": 2, "x-queue-type": "quorum"}))
    found = {how.partition(":")[0]: acts for _, how, acts in told(old, new)}
    assert found["redelivery-delay"] is found["x-queue-type"] is NEVER


@pytest.mark.parametrize(
    ("what", "old", "new", "how", "acts"), CHANGES, ids=[f"{at} {row[0]} {row[3]}" for at, row in enumerate(CHANGES)]
)
def test_each_change(what: str, old: Configuration, new: Configuration, how: str, acts: Lifetime | None) -> None:
    """Told once; and the other way round something of the same object is told, too."""
    found = [one for one in told(old, new) if one[0] == what]
    assert len(found) == 1, told(old, new)
    assert found[0][1].startswith(how) and found[0][2] is acts
    assert any(one[0] == what for one in told(new, old))
    assert told(old, old) == told(new, new) == []
    assert not [text for _, text, _ in told(old, new) if "password=" in text]


def test_a_time_to_live_of_a_policy_is_told_by_itself() -> None:
    """It is for messages that arrive, when the rest of the policy takes effect at once."""
    old, new = with_policy({"message-ttl": 5, "max-length": 1}), with_policy({"message-ttl": 6, "max-length": 1})
    assert ("policy 'p'", "message-ttl: 5 -> 6", ARRIVAL) in told(old, new)
    assert ("policy 'p'", "message-ttl: unset -> 5", ARRIVAL) in told(Configuration(), old)


def test_what_a_user_s_first_declaration_does_to_guest() -> None:
    assert ("user 'guest'", "the default one: deleted, as users are declared", LIVE) in told(
        Configuration(), with_user()
    )
    assert any(what == "user 'guest'" and "exists again" in how for what, how, _ in told(with_user(), Configuration()))
    assert not any("the default one" in how for _, how, _ in told(Configuration(), with_user(name="guest")))


@pytest.mark.parametrize("key", ["[broker]\nproxy-protocol-from", "[management]\ntrusted-proxies"])
def test_networks_are_told_as_texts(key: str) -> None:
    """Otherwise a reload that changes them would fail after it has put the configuration in force."""
    new, faults = load_configuration([("f.toml", f"{key} = ['10.0.0.0/8', '::1']")])
    ((what, how, acts),) = told(Configuration(), new)
    assert not faults and what == key.replace("\n", " ")
    assert how.endswith('[] -> ["10.0.0.0/8", "::1/128"]') and acts in (LIVE, AT_CONNECTION)


@pytest.mark.parametrize("table", KEYS)
def test_each_key_of_a_table(table: str) -> None:
    """With the lifetime that its row has; all of them at once are each told."""
    keys = {(table, name): object() for name in KEYS[table] if name != "profile"}  # which changes others
    for key, value in keys.items():
        new = Configuration(explicit=MappingProxyType({key: str(id(value))}))
        ((what, _, acts),) = [one for one in told(Configuration(), new) if one[0].startswith(f"[{table}]")]
        assert (what, acts) == (f"[{table}] {key[1]}", KEYS[table][key[1]].acts)
    new = Configuration(explicit=MappingProxyType({key: str(id(value)) for key, value in keys.items()}))
    assert len([one for one in told(Configuration(), new) if one[0].startswith(f"[{table}]")]) == len(keys)


def test_what_each_node_of_a_cluster_has_of_its_own_is_no_difference() -> None:
    """Between two nodes; one that reloads is told all of it."""

    def node(name: str, place: str, heartbeat: int) -> Configuration:
        keys = {("cluster", "node"): name, ("broker", "listen"): (place,), ("broker", "heartbeat"): heartbeat}
        return Configuration(explicit=MappingProxyType(keys), is_clustered=True)

    a = node("a", "127.0.0.1:5672", 7)
    assert [what for what, *_ in told(a, node("b", "127.0.0.1:5673", 8))] == ["[broker] heartbeat"]
    assert [what for what, *_ in told(a, node("a", "127.0.0.1:5673", 7))] == ["[broker] listen"]


@pytest.mark.parametrize("other", [{"address": "b"}, {"durable": False}], ids=str)
def test_a_restart_changes_nothing_in_a_queue_that_is_not_the_one_declared(other: dict[str, Any]) -> None:
    """With another address, or not durable, it is not followed, so that the change needs a new queue."""
    arguments = {"x-queue-type": "amps"}
    old, new = with_queue(arguments=arguments), with_queue(arguments={**arguments, "x-semantics": "at-most-once"})
    (semantics,) = (acts for _, how, acts in told(old, new) if how.startswith("semantics: "))
    assert semantics is RESTART
    old = with_queue(arguments=arguments, **other)
    (semantics,) = (acts for _, how, acts in told(old, new) if how.startswith("semantics: "))
    assert semantics is NEVER


def test_a_setting_that_another_argument_gives() -> None:
    """It changes with the argument that can change; a default that follows another argument changes with that."""

    def changes(before: dict[str, object], after: dict[str, object]) -> dict[str, Lifetime | None]:
        old, new = (with_queue(arguments=MappingProxyType(one)) for one in (before, after))
        return {how.partition(":")[0]: acts for _, how, acts in told(old, new)}

    assert changes({"x-ring-size": 7}, {"x-ring-size": 8})["default-ring-size"] is LIVE
    assert changes({"x-ring-size": 7}, {"x-max-length": 8}) == {"default-ring-size": LIVE, "x-max-length": NEVER}
    assert changes({"x-max-length": 8}, {"x-ring-size": 7}) == {"default-ring-size": NEVER, "x-max-length": NEVER}
    leased, once = {"x-queue-type": "amps"}, {"x-queue-type": "amps", "x-semantics": "at-most-once"}
    assert changes(leased, once) == {"semantics": RESTART, "fairness": RESTART}
    assert changes(leased, {**once, "x-fairness": "fast"}) == {"semantics": RESTART, "fairness": LIVE}


def test_changes_of_several_kinds_are_all_told() -> None:
    """Two at a time: neither hides the other."""
    parts: list[tuple[str, dict[str, Any]]] = [
        ("queues", {"queues": (QueueDeclaration("q", "q"),)}),
        ("exchanges", {"exchanges": (ExchangeDeclaration("x"),)}),
        ("diverts", {"diverts": (Divert("d", "a", ("b",)),)}),
        ("vhosts", {"vhosts": ("v",)}),
        ("repository", {"repository": SettingsRepository([entry("#", no_expiry=True)])}),
        ("system_usage", {"system_usage": SystemUsage(1, 0, 0)}),
    ]
    for (_, one), (_, other) in combinations(parts, 2):
        whole = told(Configuration(), Configuration(**one, **other))
        for part in (one, other):
            for change in told(Configuration(), Configuration(**part)):
                assert change[0] in [what for what, *_ in whole]
