"""What a short-lived queue is spared is what would have come to nothing: the short ways against the careful ones."""

import gc
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Broker, FieldTable, ManualClock, User, Users
from leveret.engine.events import Counters
from leveret.engine.messages.field_table import Field
from leveret.engine.publishing.arrival_rules import arrival_rules, rules_for_unmarked
from leveret.engine.rules.arguments import check_queue_arguments
from leveret.engine.rules.expiry_policy import NO_EXPIRY_POLICY, ExpiryPolicy, expiry_policy
from leveret.engine.rules.queue_rules import NO_RULES, own_settings, rules_of
from leveret.settings import Divert, Layer, Origin, layer_of
from leveret.settings.rows.address_settings import ResolvedSettings, resolve

#: An argument without effect on a queue: with it nothing can be skipped.
OF_NO_MEANING = {"x-of-no-meaning": Field("t", True)}

numbers = st.none() | st.integers(0, 3)


def said(**values: object) -> Layer:
    """A layer without what is None."""
    return layer_of(**{name: value for name, value in values.items() if value is not None})


layers = st.builds(
    said,
    default_ring_size=numbers,
    default_max_consumers=numbers,
    default_non_destructive=st.none() | st.booleans(),
    redelivery_delay_ms=numbers,
    max_delivery_attempts=numbers,
    expiry_delay_ms=numbers,
    min_expiry_delay_ms=numbers,
    no_expiry=st.none() | st.booleans(),
    dead_letter_address=st.none() | st.just("dead"),
    max_size_messages=numbers,
)


@given(layers)
def test_a_queue_without_arguments_has_the_rules_of_its_settings(layer: Layer) -> None:
    """Looked up or worked out: the same rules, and `NO_RULES` itself where there are none."""
    settings = resolve(layer)
    for _ in range(2):
        rules = rules_of({}, settings, 3)
        assert rules == rules_of(OF_NO_MEANING, settings, 3)
        assert (rules is NO_RULES) == (rules == NO_RULES)


def test_no_arguments_are_right_and_set_nothing() -> None:
    """As one that means nothing to anybody."""
    for arguments in ({}, OF_NO_MEANING):
        check_queue_arguments(arguments, name="q", vhost="/")
        assert own_settings(arguments) == layer_of()


@given(layers)
def test_the_policy_of_expiry_is_none_only_where_nothing_is_set(layer: Layer) -> None:
    """`NO_EXPIRY_POLICY` itself, which is asked for by identity."""
    settings = resolve(layer)
    limits = (settings.expiry_delay_ms, settings.min_expiry_delay_ms, settings.max_expiry_delay_ms)
    careful = ExpiryPolicy(settings.no_expiry, *(None if limit < 0 else limit for limit in limits))
    assert expiry_policy(settings) == careful
    assert (expiry_policy(settings) is NO_EXPIRY_POLICY) == (careful == NO_EXPIRY_POLICY)
    assert expiry_policy(ResolvedSettings()) is NO_EXPIRY_POLICY


COUNTS = [one.name for one in fields(Counters) if one.name != "deaths"]
counts = st.fixed_dictionaries({name: st.integers(0, 2) for name in COUNTS})


def counts_of(counters: Counters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in COUNTS}


@given(counts, counts)
def test_counters_are_added_name_by_name(one: dict[str, int], other: dict[str, int]) -> None:
    """Those that are 0 are skipped; the other's stay as they are."""
    sums, added = Counters(), Counters()
    assert set(counts_of(sums).values()) == {0} and sums.deaths is None
    for counters, values in ((sums, one), (added, other)):
        for name, value in values.items():
            setattr(counters, name, value)
    sums.add(added)
    assert counts_of(sums) == {name: one[name] + other[name] for name in COUNTS}
    assert counts_of(added) == other


@given(
    st.builds(
        said,
        enable_ingress_timestamp=st.none() | st.booleans(),
        retroactive_message_count=numbers,
        no_expiry=st.none() | st.booleans(),
        max_expiry_delay_ms=numbers,
    ),
    st.booleans(),
)
def test_an_address_whose_rules_nobody_meets_has_none(layer: Layer, diverts: bool) -> None:
    """Rules that concern unmarked messages are those of the address; otherwise there are none."""
    settings = resolve(layer)
    diverted = (Divert("d", "a", "b", origin=Origin("f", 1)),) if diverts else ()
    rules = arrival_rules("a", settings, diverted)
    concerned = rules.needs_each_message or rules.expiry is not NO_EXPIRY_POLICY
    assert rules_for_unmarked("a", settings, diverted) == (rules if concerned else None)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-max-priority": Field("l", 3)},
        {"x-last-value": Field("t", True)},
        {"x-non-destructive": Field("t", True)},
        {"x-queue-type": Field("S", b"quorum")},
        {"x-queue-type": Field("S", b"stream")},
    ],
    ids=lambda arguments: " ".join(arguments) or "plain",
)
def test_a_queue_that_is_gone_is_freed_at_once(arguments: FieldTable) -> None:
    """With all its parts and its client, by counting references: of such queues there may be a thousand a second."""
    broker = Broker(ManualClock(), Users([User("u")]))
    client = broker.connections.open("/", User("u"), name="c", flush=lambda: None)
    vhost = broker.virtual_hosts["/"]
    queue = vhost.queues.declare("q", client=client, durable=True, arguments=arguments)
    kind, identity = type(queue), id(queue)
    gc.collect()
    gc.disable()
    try:
        vhost.queues.delete("q", client)
        broker.end_turn()
        del queue
        # This one alone: other tests of the same process may hold queues of theirs.
        assert not [one for one in gc.get_objects() if type(one) is kind and id(one) == identity]
    finally:
        gc.enable()
