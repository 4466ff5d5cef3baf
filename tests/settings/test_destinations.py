"""Destination policies: ActiveMQ's wildcards, and that exactly one entry applies. Queues page E.1, "wildcards"."""

import pytest

from leveret.settings import (
    NO_DESTINATIONS,
    DestinationPolicies,
    MatchFault,
    SettingsRepository,
    entry,
    layer_of,
    parse_destination,
)
from leveret.settings.addresses.entries import Entry


def policy(name: str, limit: int = 1) -> Entry:
    """An entry with a memory limit."""
    return Entry(parse_destination(name), layer_of(memory_limit=limit))


def chosen(policies: DestinationPolicies, name: str) -> str:
    """The name of the entry of a queue."""
    found = policies.for_queue(name)
    return "none" if found is None else found.match.text


@pytest.mark.parametrize(
    "pattern, covered, others",
    [
        ("FOO.>", ("FOO", "FOO.A", "FOO.A.B"), ("FOOX", "BAR.FOO", "foo")),
        (">", ("FOO", "FOO.A"), ()),
        ("PRICES.*", ("PRICES.A",), ("PRICES", "PRICES.A.B", "PRICES.")),
        ("*.STOCK.>", ("A.STOCK", "A.STOCK.IBM"), ("STOCK", "A.B.STOCK")),
        ("FOO.BAR", ("FOO.BAR",), ("FOO", "FOO.BAR.X")),
    ],
)
def test_wildcards(pattern: str, covered: tuple[str, ...], others: tuple[str, ...]) -> None:
    """`*` is one element, `>` zero or more."""
    policies = DestinationPolicies([policy(pattern)])
    assert {name: chosen(policies, name) for name in (*covered, *others)} == {
        **dict.fromkeys(covered, pattern),
        **dict.fromkeys(others, "none"),
    }


@pytest.mark.parametrize(
    "patterns, name, applies",
    [
        (("A.>", "A.B"), "A.B", "A.B"),
        ((">", "A.>", "A.*"), "A.B", "A.*"),
        ((">", "A.>", "A.*"), "A.B.C", "A.>"),
        ((">", "A.>", "A.*"), "B", ">"),
        (("*.B", "A.*"), "A.B", "*.B"),
        (("A.*.>", "A.>"), "A.B", "A.*.>"),
        (("*.B.>", "A.>", "A.B.>"), "A.B.C", "A.B.>"),
        (("*.*", "A.>"), "A.B", "*.*"),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_exactly_one_applies(patterns: tuple[str, ...], name: str, applies: str, is_reversed: bool) -> None:
    """The exact name, else the most specific pattern, else the first by name; whatever the order in the file."""
    ordered = patterns[::-1] if is_reversed else patterns
    assert chosen(DestinationPolicies(map(policy, ordered)), name) == applies


def test_the_default_applies_to_what_nothing_else_covers() -> None:
    """To queues and topics alike."""
    policies = DestinationPolicies([policy("A", 1)], [policy("B", 2)], policy(">", 3))
    limits = {name: (policies.for_queue(name), policies.for_topic(name)) for name in ("A", "B")}
    assert {name: [one.settings["memory_limit"] for one in both if one] for name, both in limits.items()} == {
        "A": [1, 3],
        "B": [3, 2],
    }


def test_the_entry_lies_over_the_merged_address_settings() -> None:
    """Of a queue the queue entry, of a topic the topic entry; a plain look-up has neither."""
    settings = SettingsRepository(
        [entry("#", memory_limit=9, cursor="vm"), entry("A.#", redelivery_delay_ms=5)],
        destinations=DestinationPolicies([policy("A.>", 1)], [policy("A.*", 2)]),
    )
    nothing = layer_of()
    for _ in range(2):  # also from the cache
        queue, topic = settings.resolve_queue("A.B", "/", nothing), settings.resolve_topic("A.B")
        assert (queue.memory_limit, queue.cursor, queue.redelivery_delay_ms) == (1, "vm", 5)
        assert (topic.memory_limit, topic.cursor) == (2, "vm")
        assert settings.resolve("A.B").memory_limit == 9
        assert settings.resolve_topic("A").memory_limit == 9
    assert settings.resolve_queue("A.C", "/", nothing) is settings.resolve_queue("A.B", "/", nothing)


def test_a_queue_is_looked_up_by_its_name() -> None:
    """The address-settings by its address; arguments and policies lie over both."""
    settings = SettingsRepository(
        [entry("orders", redelivery_delay_ms=5)], destinations=DestinationPolicies([policy("jobs.>", 1)])
    )
    nothing, own = layer_of(), layer_of(redelivery_delay_ms=7)
    one = settings.resolve_queue("orders", "/", nothing, name="jobs.a")
    assert (one.memory_limit, one.redelivery_delay_ms) == (1, 5)
    assert settings.resolve_queue("orders", "/", nothing, name="orders").memory_limit == -1
    assert settings.resolve_queue("orders", "/", nothing).memory_limit == -1
    one = settings.resolve_queue("orders", "/", own, name="jobs.a")
    assert (one.memory_limit, one.redelivery_delay_ms) == (1, 7)
    one = settings.resolve_queue("orders", "/", nothing, layer_of(memory_limit=3), name="jobs.a")
    assert (one.memory_limit, one.redelivery_delay_ms) == (3, 5)


@pytest.mark.parametrize("attempts", [(5, 3), (3, 5)])
def test_a_policy_changes_no_other_queue_that_is_declared_alike(attempts: tuple[int, int]) -> None:
    """Whichever of the two is looked up first."""
    settings, own = SettingsRepository(), layer_of(max_delivery_attempts=5)
    layers = {5: layer_of(), 3: layer_of(max_delivery_attempts=3)}
    found = [settings.resolve_queue("q", "/", own, layers[one]).max_delivery_attempts for one in attempts]
    assert tuple(found) == attempts


def test_without_policies_a_topic_is_an_address() -> None:
    """It costs one look-up."""
    settings = SettingsRepository([entry("#", memory_limit=9)])
    assert settings.destinations is NO_DESTINATIONS
    assert settings.resolve_topic("A.B") is settings.resolve("A.B")


@pytest.mark.parametrize(
    "name, problem",
    [
        ("", "covers nothing"),
        ("A..B", "an element is empty"),
        (".A", "an element is empty"),
        ("A.>.B", "'>' is allowed only as the last word"),
        ("A*", "a wildcard must be a whole word"),
        ("A,B", "an entry for each"),
    ],
)
def test_names_that_are_refused(name: str, problem: str) -> None:
    """Queues page H.3, "reject"."""
    with pytest.raises(MatchFault, match=problem.replace("*", r"\*").replace("?", r"\?")):
        parse_destination(name)
