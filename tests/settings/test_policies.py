"""Policies by themselves: what is refused and in which words, which one holds, what it does to a declaration.

The texts were probed on RabbitMQ 3.10.8; tests/spec/test_policies.py asks brokers. Source: behaviour page 3.12.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.expressions.patterns.patterns import Pattern
from leveret.settings import (
    NO_POLICY,
    Policies,
    Policy,
    PolicyFault,
    SettingsRepository,
    load_configuration,
    make_policy,
    policy_layer,
    settings_of_arguments,
)
from leveret.settings.explain import explain
from leveret.settings.policies.policy import read_policy
from leveret.settings.policies.policy_keys import POLICY_KEYS

ANY = {"max-length": 1}


@pytest.mark.parametrize(
    "pattern, definition, options, text",
    [
        ("[", ANY, {}, "pattern should be regular expression but is invalid: "),
        (5, ANY, {}, "pattern should be a binary but was 5"),
        ("^x", {}, {}, "no policy provided"),
        ("^x", {"foo": 1}, {}, '[{<<"foo">>,1}] are not recognised policy settings'),
        ("^x", {"foo": 1, "bar": "x"}, {}, '[{<<"bar">>,<<"x">>},{<<"foo">>,1}] are not recognised policy settings'),
        ("^x", {"max-priority": 3}, {}, '[{<<"max-priority">>,3}] are not recognised policy settings'),
        ("^x", ANY, {"apply_to": "foo"}, "apply-to 'foo' unrecognised; should be 'queues', 'exchanges' or 'all'"),
        ("^x", ANY, {"priority": "1"}, 'priority should be a number, actually was <<"1">>'),
        ("^x", ANY, {"priority": True}, "priority should be a number, actually was true"),
        ("^x", [], {}, "the definition must be an object"),
        ("^x", {"max-length": "x"}, {}, '<<"x">> is not a valid maximum length'),
        ("^x", {"max-length": -1}, {}, "-1 is not a valid maximum length"),
        ("^x", {"max-length": 1.5}, {}, "1.5 is not a valid maximum length"),
        ("^x", {"max-length": True}, {}, "true is not a valid maximum length"),
        ("^x", {"max-length": None}, {}, "null is not a valid maximum length"),
        ("^x", {"max-length": 2**63}, {}, "9223372036854775808 is not a valid maximum length"),
        ("^x", {"max-length-bytes": -1}, {}, "-1 is not a valid maximum length in bytes"),
        ("^x", {"message-ttl": -1}, {}, "-1 is not a valid message TTL"),
        ("^x", {"expires": 0}, {}, "0 is not a valid queue expiry"),
        ("^x", {"max-age": "7d"}, {}, '<<"7d">> is not a valid max age'),
        ("^x", {"overflow": "x"}, {}, '<<"x">> is not a valid overflow value'),
        ("^x", {"dead-letter-exchange": 1}, {}, "1 is not a valid dead letter exchange name"),
        ("^x", {"dead-letter-routing-key": 1}, {}, "1 is not a valid dead letter routing key"),
        ("^x", {"dead-letter-strategy": "x"}, {}, '<<"x">> is not a valid dead letter strategy'),
        ("^x", {"alternate-exchange": 1}, {}, "1 is not a valid alternate exchange name"),
        ("^x", {"delivery-limit": "x"}, {}, '<<"x">> is not a valid delivery limit'),
        ("^x", {"queue-mode": "x"}, {}, '<<"x">> is not a valid queue-mode value'),
        ("^x", {"queue-version": 3}, {}, "3 is not a valid queue-version value"),
        ("^x", {"queue-version": True}, {}, "true is not a valid queue-version value"),
        ("^x", {"queue-leader-locator": ""}, {}, "<<>> is not a valid queue leader locator value"),
        ("^x", {"queue-leader-locator": "foo"}, {}, '<<"foo">> is not a valid queue leader locator value'),
        ("^x", {"queue-master-locator": "foo"}, {}, '<<"foo">> invalid queue-master-locator value'),
        ("^x", {"max-age": "1q"}, {}, '<<"1q">> is not a valid max age'),
        ("^x", {"max-age": 1}, {}, "1 is not a valid max age"),
        ("^x", {"stream-max-segment-size-bytes": -1}, {}, "-1 is not a valid segment size"),
        ("^x", {"max-in-memory-length": -1}, {}, "-1 is not a valid maximum memory in bytes"),
        ("^x", {"ha-mode": "x"}, {}, '<<"x">> is not a valid ha-mode value'),
        ("^x", {"ha-mode": 5}, {}, "5 is not a valid ha-mode value"),  # RabbitMQ answers 500
        ("^x", {"ha-mode": "exactly"}, {}, 'ha-mode="exactly" takes an integer, none given'),
        ("^x", {"ha-mode": "exactly", "ha-params": 0}, {}, 'ha-mode="exactly" takes an integer, 0 given'),
        ("^x", {"ha-mode": "exactly", "ha-params": "2"}, {}, 'ha-mode="exactly" takes an integer, <<"2">> given'),
        ("^x", {"ha-mode": "exactly", "ha-params": None}, {}, 'ha-mode="exactly" takes an integer, null given'),
        ("^x", {"ha-mode": "exactly", "ha-params": True}, {}, 'ha-mode="exactly" takes an integer, true given'),
        ("^x", {"ha-mode": "all", "ha-params": 2}, {}, 'ha-mode="all" does not take parameters'),
        ("^x", {"ha-mode": "nodes"}, {}, 'ha-mode="nodes" takes a list, none given'),
        ("^x", {"ha-mode": "nodes", "ha-params": 2}, {}, 'ha-mode="nodes" takes a list, 2 given'),
        ("^x", {"ha-mode": "nodes", "ha-params": []}, {}, 'ha-mode="nodes" list must be non-empty'),
        (
            "^x",
            {"ha-mode": "nodes", "ha-params": ["a", 1]},
            {},
            'ha-mode="nodes" takes a list of strings, [1] was not a string',
        ),
        ("^x", {"ha-sync-mode": "x"}, {}, "ha-mode must be specified to specify ha-params"),
        ("^x", {"ha-mode": "all", "ha-sync-mode": 5}, {}, 'ha-sync-mode must be "manual" or "automatic", got 5'),
        (
            "^x",
            {"ha-mode": "all", "ha-promote-on-shutdown": 1, "ha-sync-batch-size": 0},
            {},
            "ha-sync-batch-size takes an integer greater than 0, 0 given",
        ),
        (
            "^x",
            {"ha-mode": "all", "ha-promote-on-failure": "x"},
            {},
            'ha-promote-on-failure must be "always" or "when-synced", got <<"x">>',
        ),
        ("^x", {"dead-letter-exchange": "x"}, {"is_operator": True}, '[{<<"dead-letter-exchange">>,<<"x">>}] are not'),
        ("^x", {"max-length": -1}, {"is_operator": True}, "-1 is not a valid maximum length"),
        ("^x", {"redelivery-delay": "soon"}, {}, '<<"soon">> is not a valid redelivery-delay'),
        ("^x", {"ring-size": 3, "max-length": 5}, {}, "ring-size: contradicts max-length"),
        ("^x", {"max-length": [1, {"a": None}]}, {}, '[1,#{<<"a">> => null}] is not a valid maximum length'),
    ],
)
def test_refusals(pattern: object, definition: object, options: dict[str, Any], text: str) -> None:
    """RabbitMQ's words, where it has some."""
    with pytest.raises(PolicyFault) as refused:
        make_policy("p", "/", pattern, definition, **options)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    "definition",
    [
        {"ha-mode": "all", "ha-sync-mode": "automatic"},
        {"ha-mode": "exactly", "ha-params": 2},
        {"ha-mode": "nodes", "ha-params": ["rabbit@a"], "ha-promote-on-shutdown": "always"},
        {"queue-mode": "lazy"},
        {"federation-upstream-set": "all"},
        {"queue-version": 2},
        {"message-ttl": 400_000_000_000},
        {"delivery-limit": -1},
        {"consumer-timeout": 0},
        {"redelivery-delay-multiplier": 2},
        {"redelivery-delay-multiplier": 2.5},
    ],
)
def test_accepted(definition: dict[str, object]) -> None:
    """As RabbitMQ does, heeded or not; each number as it was given, also an integer where a fraction may stand."""
    assert repr(dict(make_policy("p", "/", "", definition).definition)) == repr(definition)


@pytest.mark.parametrize(
    "name, is_right", [("", False), ("n", True), ("n" * 255, True), ("n" * 256, False), ("\u00e9" * 128, False)]
)
def test_a_name_has_1_to_255_octets(name: str, is_right: bool) -> None:
    """As names of AMQP do: an umlaut has two."""
    if is_right:
        assert make_policy(name, "/", "", ANY).name == name
    else:
        with pytest.raises(PolicyFault, match="the name must be text of 1 to 255 octets"):
            make_policy(name, "/", "", ANY)


def test_what_was_accepted_once_is_read_again() -> None:
    """Earlier releases took any value of keys of mirrored queues: their journals and versions have such policies."""
    odd = {"ha-mode": "all", "ha-params": 2, "ha-sync-mode": "x"}
    with pytest.raises(PolicyFault):
        make_policy("p", "/", "", odd)
    assert make_policy("p", "/", "", odd, is_stored=True).definition == odd


def test_a_queue_version_with_a_point() -> None:
    """RabbitMQ refuses 2.0; earlier releases took it for 2, so it is read as 2 from journals, versions and files."""
    with pytest.raises(PolicyFault, match="2.0 is not a valid queue-version value"):
        make_policy("p", "/", "", {"queue-version": 2.0})
    text = '[[policy]]\nname = "p"\npattern = ""\ndefinition = {queue-version = 2.0}'
    configuration, faults = load_configuration([("x.toml", text)])
    (found,) = configuration.policies
    assert not faults and type(found.definition["queue-version"]) is int and found.definition == {"queue-version": 2}


def policy(name: str = "p", pattern: str = "", apply_to: str = "all", priority: int = 0, **keys: object) -> Policy:
    """One; `operator=True` an operator's. Underscores of keys stand for dashes."""
    is_operator = bool(keys.pop("operator", False))
    definition = {key.replace("_", "-"): value for key, value in keys.items()} or ANY
    return make_policy(name, "/", pattern, definition, apply_to=apply_to, priority=priority, is_operator=is_operator)


@pytest.mark.parametrize(
    "policies, name, kind, winner",
    [
        ([policy("a"), policy("b", priority=1)], "q", "classic", "b"),
        ([policy("b"), policy("a")], "q", "classic", "a"),  # the same priority: by name
        ([policy("a", "^x", priority=9), policy("b")], "q", "classic", "b"),
        ([policy("a", "q")], "a.q.b", "classic", "a"),  # unanchored
        ([policy("a", "^q$")], "a.q", "classic", None),
        ([policy("a", "")], "q", "classic", "a"),
        ([policy("a", apply_to="exchanges")], "q", "classic", None),
        ([policy("a", apply_to="queues")], "q", "exchange", None),
        ([policy("a", apply_to="all")], "q", "exchange", "a"),
        ([policy("a", apply_to="quorum_queues")], "q", "classic", None),
        ([policy("a", apply_to="quorum_queues")], "q", "quorum", "a"),
        ([policy("a", apply_to="classic_queues")], "q", "classic", "a"),
        ([policy("a", apply_to="streams", max_age="1h")], "q", "stream", "a"),
        # A key that the type does not have: the policy is for others.
        ([policy("a", priority=1, max_length=1, delivery_limit=2), policy("b")], "q", "classic", "b"),
        ([policy("a", delivery_limit=2)], "q", "quorum", "a"),
        ([policy("a", message_ttl=2)], "q", "stream", None),
        ([policy("a", ha_mode="all")], "q", "quorum", None),
        ([policy("a", alternate_exchange="x", max_length=1)], "q", "classic", "a"),
    ],
)
def test_which_one_holds(policies: list[Policy], name: str, kind: str, winner: str | None) -> None:
    """The highest priority of those that match, whole."""
    of = Policies(policies)
    effective = of.of_exchange(name, "/") if kind == "exchange" else of.of_queue(name, kind, "/")
    assert (effective.policy.name if effective.policy is not None else None) == winner


@pytest.mark.parametrize("first", ["classic", "exchange"])
def test_of_a_queue_and_an_exchange_of_one_name(first: str) -> None:
    """Whichever of them is asked for first: a policy for the other kind is not for it."""
    of = Policies([policy("of queues", apply_to="queues"), policy("of exchanges", apply_to="exchanges")])
    if first == "exchange":
        of.of_exchange("x", "/")
    assert of.of_queue("x", "classic", "/").policy == policy("of queues", apply_to="queues")
    assert of.of_exchange("x", "/").policy == policy("of exchanges", apply_to="exchanges")


def test_a_policy_of_the_same_name_takes_its_place() -> None:
    """A policy, an operator policy and one of another virtual host are three, whatever their names."""
    before = [make_policy("p", vhost, "", ANY, is_operator=operator) for vhost in "ab" for operator in (False, True)]
    other = make_policy("p", "a", "^x", ANY)
    policies = Policies(before).with_these([other])
    assert policies.find("a", "p") is other and list(policies) == [other, *before[1:]]


def test_policies_are_listed_by_virtual_host_and_priority() -> None:
    policies = [make_policy(name, vhost, "", ANY, priority=len(name)) for vhost in "ba" for name in ("p", "pp")]
    assert [(one.vhost, one.name) for one in Policies(policies)] == [("a", "pp"), ("a", "p"), ("b", "pp"), ("b", "p")]


def test_what_a_client_leaves_out_of_a_policy() -> None:
    """It applies to all, with priority 0; what is written is read again."""
    found = read_policy("p", "/", {"pattern": "^x", "definition": ANY, "of-later": 1}, is_operator=False)
    assert found == make_policy("p", "/", "^x", ANY, apply_to="all", priority=0)
    other = make_policy("p", "/", "^x", ANY, apply_to="queues", priority=7)
    assert read_policy("p", "/", other.value(), is_operator=False) == other


def test_of_another_virtual_host() -> None:
    """Policies are for their own."""
    assert Policies([policy()]).of_queue("q", "classic", "other") == NO_POLICY


@pytest.mark.parametrize(
    "users, operators, merged",
    [
        ({"max-length": 5}, {"max-length": 3}, {"max-length": 3}),
        ({"max-length": 3}, {"max-length": 5}, {"max-length": 3}),
        ({"message-ttl": 5}, {"expires": 3}, {"message-ttl": 5, "expires": 3}),
        ({"overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
        ({"delivery-limit": -1}, {"delivery-limit": 3}, {"delivery-limit": 3}),
        ({"delivery-limit": 2}, {"delivery-limit": -1}, {"delivery-limit": 2}),
    ],
)
def test_an_operators_policy_caps(
    users: dict[str, object], operators: dict[str, object], merged: dict[str, object]
) -> None:
    """The union; of two numbers the smaller."""
    both = Policies([make_policy("a", "/", "", users), make_policy("b", "/", "", operators, is_operator=True)])
    effective = both.of_queue("q", "quorum", "/")
    assert effective.definition == merged
    assert {one.name for one in effective.policies} == {"a", "b"}


@pytest.mark.parametrize(
    "declared, users, operators, arguments",
    [
        ({}, {"max-length": 5}, {}, {"x-max-length": 5}),
        ({"x-max-length": 3}, {"max-length": 5}, {}, {}),
        ({"x-max-length": 9}, {"max-length": 5}, {}, {"x-max-length": 5}),
        ({"x-message-ttl": 9, "x-expires": 9}, {"message-ttl": 5, "expires": 20}, {}, {"x-message-ttl": 5}),
        ({"x-overflow": "reject-publish"}, {"overflow": "drop-head"}, {}, {}),
        ({"x-dead-letter-exchange": "a"}, {"dead-letter-exchange": "b"}, {}, {}),
        ({"x-dead-letter-exchange": "a"}, {"dead-letter-routing-key": "k"}, {}, {"x-dead-letter-routing-key": "k"}),
        ({}, {"dead-letter-routing-key": "k"}, {}, {}),
        ({"x-delivery-limit": -1}, {"delivery-limit": 5}, {}, {"x-delivery-limit": 5}),
        ({"x-delivery-limit": 7}, {"delivery-limit": 5}, {}, {"x-delivery-limit": 5}),
        # Ours: a declaration that rules the same in another way wins, but not over an operator.
        ({"x-ring-size": 3}, {"max-length": 5}, {}, {}),
        ({"x-ring-size": 3}, {"overflow": "reject-publish"}, {}, {}),
        ({"x-overflow": "reject-publish"}, {"ring-size": 3}, {}, {}),
        ({"x-ring-size": 3}, {}, {"max-length": 5}, {"x-max-length": 5}),
        ({"x-ring-size": 3}, {"max-length": 5}, {"max-length": 5}, {"x-max-length": 5}),
        ({"x-dead-letter-address": "d"}, {"dead-letter-exchange": "x"}, {}, {}),
        ({"x-redelivery-delay": 3}, {"redelivery-delay": 5}, {}, {}),
        ({}, {"redelivery-delay": "5s"}, {}, {"x-redelivery-delay": 5000}),
        ({}, {"queue-mode": "lazy"}, {}, {}),
    ],
)
def test_declaration_and_policy(
    declared: dict[str, object], users: dict[str, object], operators: dict[str, object], arguments: dict[str, object]
) -> None:
    """Numbers: the smaller; else the declaration (ruling 11)."""
    policies = [make_policy("a", "/", "", users)] if users else []
    policies += [make_policy("b", "/", "", operators, is_operator=True)] if operators else []
    kind = "quorum" if "delivery-limit" in {*users, *operators} else "classic"
    layer = policy_layer(Policies(policies).of_queue("q", kind, "/"), declared)
    assert layer.arguments == arguments


def test_an_operators_delivery_limit_caps_our_attempts() -> None:
    """x-max-delivery-attempts 10 under an operator's delivery-limit of 2: three deliveries; 1 stays 1."""
    caps = Policies([policy(operator=True, delivery_limit=2)]).of_queue("q", "quorum", "/")
    for attempts, expected in ((10, 3), (1, 1)):
        declared = {"x-max-delivery-attempts": attempts}
        layer = policy_layer(caps, declared)
        own = settings_of_arguments(declared).settings
        resolved = SettingsRepository().resolve_queue("q", "/", own, layer.settings)
        assert resolved.max_delivery_attempts == expected


@pytest.mark.parametrize(("deliveries", "limit", "expected"), [(2, 9, 2), (20, 3, 4)])
def test_the_smaller_of_two_limits_of_attempts_under_different_names(
    deliveries: int, limit: int, expected: int
) -> None:
    """A policy's max-deliveries beside an operator's delivery-limit, which counts redeliveries (ruling 11)."""
    both = Policies(
        [make_policy("a", "/", "", {"max-deliveries": deliveries}), policy(operator=True, delivery_limit=limit)]
    )
    settings = policy_layer(both.of_queue("q", "quorum", "/"), {}).settings
    assert settings["max_delivery_attempts"] == expected


CONFIGURATION = """
[[address-setting]]
match = "#"
dead-letter-address = "failed"
redelivery-delay = 7

[[policy]]
name = "jobs"
pattern = "^jobs"
definition = { redelivery-delay = "1s", max-length = 10, dead-letter-exchange = "dead" }

[[operator-policy]]
name = "cap"
pattern = ""
apply-to = "queues"
definition = { max-length = 5 }

[[address]]
name = "jobs.a"
[[address.queue]]
name = "jobs.a"
arguments = { x-max-length = 8 }
"""


def test_explained() -> None:
    """`leveret explain` of a configuration: the policies' names, their values, what they are below."""
    configuration, faults = load_configuration([("f.toml", CONFIGURATION)])
    assert not faults
    (one,) = explain(configuration, "jobs.a")
    assert one.policies == ("f.toml:7: policy 'jobs'", "f.toml:12: operator policy 'cap'")
    rows = {row.name: (row.value, row.rule) for row in one.rows}
    assert rows["redelivery-delay"] == (1000, "f.toml:7: policy 'jobs' (redelivery-delay)")
    assert rows["dead-letter-address"] == ("", "f.toml:7: policy 'jobs' (dead-letter-exchange)")
    assert rows["x-dead-letter-exchange"] == ("dead", "f.toml:7: policy 'jobs'")
    value, rule = rows["x-max-length"]
    assert (value, rule.partition(", below")[0]) == (5, "f.toml:12: operator policy 'cap'")
    assert "below 8 of f.toml:" in rule
    (address,) = explain(configuration, "other")
    assert address.policies == ("f.toml:12: operator policy 'cap'",)
    rows = {row.name: (row.value, row.rule) for row in address.rows}
    assert rows["x-max-length"] == (5, "f.toml:12: operator policy 'cap'")
    assert rows["dead-letter-address"][0] == "failed"


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [(10, (3, "f.toml:1: operator policy 'cap' (delivery-limit)")), (2, (2, "(x-max-delivery-attempts)"))],
)
def test_the_lower_limit_of_attempts_is_explained(attempts: int, expected: tuple[int, str]) -> None:
    """Where a queue and a policy limit them, the one that counts is named."""
    text = (
        "[[operator-policy]]\nname = 'cap'\npattern = ''\ndefinition = { delivery-limit = 2 }\n[[queue]]\nname = 'q'\n"
    )
    text += f"type = 'quorum'\nmax-delivery-attempts = {attempts}\n"
    configuration, faults = load_configuration([("f.toml", text)])
    assert not faults
    (row,) = (row for row in explain(configuration, "q")[0].rows if row.name == "max-delivery-attempts")
    assert row.value == expected[0] and row.rule.endswith(expected[1])


@pytest.mark.parametrize(
    "text, fault",
    [
        ('[[policy]]\npattern = ""\ndefinition = { max-length = 1 }', "f.toml:1: name: is missing in [[policy]]"),
        ('[[policy]]\nname = "p"\ndefinition = { max-length = 1 }', "f.toml:1: pattern: is missing in [[policy]]"),
        ('[[policy]]\nname = "p"\npattern = "("\ndefinition = { max-length = 1 }', "f.toml:3: pattern: pattern should"),
        ('[[policy]]\nname = "p"\npattern = ""', "f.toml:1: definition: no policy provided"),
        (
            '[[policy]]\nname = "p"\npattern = ""\ndefinition = { max-lenght = 1 }',
            "f.toml:4: max-lenght: unknown key in [[policy]], did you mean 'max-length'?",
        ),
        (
            '[[operator-policy]]\nname = "p"\npattern = ""\ndefinition = { queue-mode = "lazy" }',
            "f.toml:4: queue-mode: unknown key in [[operator-policy]]",
        ),
        (
            '[[policy]]\nname = "p"\npattern = ""\napply-to = "all-of-it"\ndefinition = { max-length = 1 }',
            "f.toml:4: apply-to: 'all-of-it' is invalid, expected one of all, queues",
        ),
        ('[[policy]]\nname = "p"\npattern = ""\ndefinition = 3', "f.toml:4: definition: 3 is invalid"),
        (
            '[[policy]]\nname = "p"\npattern = ""\ndefinition = { max-length = 1 }\n' * 2,
            "f.toml:5: policy: 'p' is already declared at f.toml:1",
        ),
        ("[[policy]]\nprio = 1", "f.toml:2: prio: unknown key in [[policy]], did you mean 'priority'?"),
    ],
)
def test_faults_of_a_file(text: str, fault: str) -> None:
    """FILE:LINE: KEY: why."""
    _, faults = load_configuration([("f.toml", text)])
    assert any(str(one).startswith(fault) for one in faults), faults


@given(
    st.dictionaries(
        st.sampled_from([*POLICY_KEYS, "foo"]) | st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
            max_leaves=4,
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_whatever_is_in_it(definition: dict[str, object], is_operator: bool) -> None:
    """A policy, or a fault; a policy can be asked for any queue."""
    try:
        one = make_policy("p", "/", "^q", definition, is_operator=is_operator)
    except PolicyFault:
        return
    for kind in ("classic", "quorum", "stream"):
        layer = policy_layer(Policies([one]).of_queue("q", kind, "/"), {"x-ring-size": 3, "x-max-length-bytes": 5})
        assert set(layer.arguments) <= {row.argument for row in POLICY_KEYS.values()}


#: What operators write for the queues of one team, application or purpose.
MANY = ["^team{}\\.", "^.*orders{}.*$", "\\.dlq{}$", "^(a|b)[0-9]+{}", "name{}", "^(?!amq\\.)x{}.*"]


@pytest.mark.parametrize("pattern", MANY)
@pytest.mark.parametrize("count", [100, 401, 1000])
def test_what_it_costs_to_find_the_policy_of_a_name(pattern: str, count: int) -> None:
    """A name of 250 octets beside many policies: a unit (1 us) for each at most, if they begin alike or not at all."""
    policies = Policies(make_policy(f"p{n}", "/", pattern.format(n), {"max-length": n + 1}) for n in range(count))
    policies.of_queue("first", "classic", "/")
    before = policies.spent
    assert policies.of_queue("q" * 250, "classic", "/") is NO_POLICY
    assert policies.spent - before <= count
    if pattern.startswith("^team"):
        assert policies.spent - before <= 4  # by what they begin with, however many they are


def test_patterns_that_need_the_automaton_are_counted() -> None:
    """For each character, and far more for those that are new to it: whoever asks can stop."""
    policies = Policies([make_policy("p", "/", "^(a+b?)+.*(a|b)+c$", {"max-length": 1})])
    costs = []
    for name in ("a" * 250, "a" * 250, "b" * 250):
        before = policies.spent
        policies.of_queue(name, "classic", "/")
        costs.append(policies.spent - before)
    assert costs[0] > costs[1] > 60
    assert costs[2] > costs[1]


PATTERNS = st.sampled_from(["^a", "^ab", "^a.*b$", "b", ".*", "^$", "^(?!a)", "^aa", "a.*b", "^A", "(?i)^A"])


@given(
    st.lists(st.tuples(PATTERNS, st.integers(0, 3), st.sampled_from(["all", "queues", "exchanges"])), max_size=12),
    st.lists(st.text("abA\n", max_size=5), max_size=6),
)
def test_the_best_of_those_that_match(given_: list[tuple[str, int, str]], names: list[str]) -> None:
    """As if each were asked, in the order of priority and name."""
    made = [
        make_policy(f"p{n:02}", "/", pattern, {"max-length": 1} if kind != "exchanges" else {"alternate-exchange": "x"},
                    apply_to=kind, priority=priority)
        for n, (pattern, priority, kind) in enumerate(given_)
    ]  # fmt: skip
    policies = Policies(made)
    for name in names:
        best = sorted(
            (one for one in made if one.apply_to != "exchanges" and Pattern(one.pattern).search(name)),
            key=lambda one: (-one.priority, one.name),
        )
        assert policies.of_queue(name, "classic", "/").policy == (best[0] if best else None)


#: Policy keys that are limits, of which the smaller holds, and others; with values of which one is no limit.
LIMITS: dict[str, tuple[Any, ...]] = {"max-length": (1, 5, 9), "message-ttl": (0, 7), "delivery-limit": (-1, 0, 3)}
OTHERS: dict[str, tuple[Any, ...]] = {"overflow": ("drop-head", "reject-publish"), "dead-letter-exchange": ("x", "y")}


def smaller(key: str, one: Any, other: Any) -> Any:
    """Of two limits; a negative delivery limit is none."""
    limits = [limit for limit in (one, other) if key != "delivery-limit" or limit >= 0]
    return min(limits) if limits else other


def drawn_policies(chance: Random) -> list[Policy]:
    made = []
    for n in range(chance.randint(0, 5)):
        is_operator = chance.random() < 0.4
        keys = {**LIMITS, **({"overflow": OTHERS["overflow"]} if is_operator else OTHERS)}
        definition = {key: chance.choice(values) for key, values in keys.items() if chance.random() < 0.5}
        made.append(
            make_policy(
                f"p{chance.randrange(4)}" if n else "p",
                chance.choice(("/", "v")),
                chance.choice(("^a", "^ab", "b$", ".*")),
                definition or {"max-length": 2},
                priority=chance.randrange(3),
                apply_to=chance.choice(("all", "queues", "quorum_queues")),
                is_operator=is_operator,
            )
        )
    return list({one.identity: one for one in made}.values())


def best_of(policies: list[Policy], name: str, kind: str, vhost: str, *, is_operator: bool) -> Policy | None:
    """By the definition: of those that match whole, the highest priority, then the first name."""
    matching = [
        one
        for one in policies
        if (one.vhost, one.is_operator) == (vhost, is_operator)
        and Pattern(one.pattern).search(name)
        and (one.apply_to != "quorum_queues" or kind == "quorum")
        and all(kind in POLICY_KEYS[key].on for key in one.definition)
    ]
    return min(matching, key=lambda one: (-one.priority, one.name), default=None)


@pytest.mark.parametrize("seed", range(60))
def test_what_a_queue_has_of_policies_and_its_declaration(seed: int) -> None:
    """In any order of asking: the operator's over the user's, limits by the smaller one, else the declaration's."""
    chance = Random(seed)
    given = drawn_policies(chance)
    policies = Policies(given)
    for _ in range(40):
        name, kind, vhost = (
            chance.choice(("a", "ab", "b", "c")),
            chance.choice(("classic", "quorum")),
            chance.choice("/v"),
        )
        declared: dict[str, object] = {
            f"x-{key}": chance.choice(values) for key, values in {**LIMITS, **OTHERS}.items() if chance.random() < 0.3
        }
        if chance.random() < 0.3:
            declared["x-other"] = chance.choice((1, True, 1.0, "1"))
        user = best_of(given, name, kind, vhost, is_operator=False)
        operator = best_of(given, name, kind, vhost, is_operator=True)
        effective = policies.of_queue(name, kind, vhost)
        assert (effective.policy, effective.operator) == (user, operator)
        merged: dict[str, Any] = dict(user.definition) if user is not None else {}
        for key, value in (operator.definition if operator is not None else {}).items():
            merged[key] = smaller(key, value, merged[key]) if key in merged and key in LIMITS else value
        assert dict(effective.definition) == merged
        layer, expected = effective.layer(declared), {}
        for key, value in merged.items():
            mine = declared.get(f"x-{key}")
            if mine is None:
                expected[f"x-{key}"] = value
            elif key in LIMITS and smaller(key, value, mine) != mine:
                expected[f"x-{key}"] = smaller(key, value, mine)
        assert dict(layer.arguments) == expected, (merged, declared)
        for argument, giver in layer.given_by.items():
            assert giver in effective.policies and argument[2:] in giver.definition


@pytest.mark.parametrize("declared, capped", [((5, 5.0), (True, False)), ((5.0, 5), (False, True))])
def test_values_that_python_takes_for_equal_are_different_declarations(
    declared: tuple[float, float], capped: tuple[bool, bool]
) -> None:
    """An operator's cap lowers a limit; a number that is no integer is no limit, whichever is declared first."""
    cap = make_policy("cap", "/", "", {"max-length": 3}, is_operator=True)
    effective = Policies([cap]).of_queue("q", "classic", "/")
    layers = [effective.layer({"x-max-length": value}) for value in declared]
    assert tuple(layer.arguments == {"x-max-length": 3} for layer in layers) == capped


@pytest.mark.parametrize("seed", range(60))
def test_whoever_has_another_policy_now_hears_of_the_change(seed: int) -> None:
    """New, changed, deleted, or no longer the best: a queue that is not concerned has what it had."""
    chance = Random(seed)
    for _ in range(10):
        before = Policies(drawn_policies(chance))
        after = before.with_these(drawn_policies(chance)[:2]).without(
            [one.identity for one in before if chance.random() < 0.3]
        )
        changed = after.changed_since(before)
        for name, kind in product(("a", "ab", "b", "c"), ("classic", "quorum")):
            held, now = before.of_queue(name, kind, "/"), after.of_queue(name, kind, "/")
            if (held.policy, held.operator) != (now.policy, now.operator):
                assert after.may_concern(name, kind, held, changed), (name, kind, held, now)


@pytest.mark.parametrize(
    "key, value",
    [
        ("alternate-exchange", "x"),
        ("dead-letter-exchange", "x"),
        ("dead-letter-routing-key", "k"),
        ("dead-letter-strategy", "at-most-once"),
        ("max-age", "1h"),
        ("queue-mode", "lazy"),
        ("ring-size", 3),
        ("max-delivery-attempts", 3),
    ],
)
def test_operators_set_limits_and_nothing_else(key: str, value: object) -> None:
    """Where messages go is decided by those who own the queues; a limit beside it does not make it valid."""
    make_policy("p", "/", "", {key: value})
    for definition in ({key: value}, {"max-length": 3, key: value}):
        with pytest.raises(ValueError, match=f"{key}.*are not recognised policy settings"):
            make_policy("p", "/", "", definition, is_operator=True)
