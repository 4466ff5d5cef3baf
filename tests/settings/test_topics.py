"""What topics set for their transient subscribers. Queues page E.2."""

from typing import Any

import pytest

from leveret.settings import DestinationPolicies, SettingsRepository, entry, layer_of, merge_topics, parse_destination
from leveret.settings.addresses.entries import Entry


def policies(**fields: Any) -> DestinationPolicies:
    """One entry for topics below FOO."""
    return DestinationPolicies(topics=[Entry(parse_destination("FOO.>"), layer_of(**fields))])


@pytest.mark.parametrize(
    ("repository", "concerns"),
    [
        (SettingsRepository(), False),
        (SettingsRepository([entry("#", redelivery_delay_ms=5)]), False),
        (SettingsRepository([entry("A", memory_limit=5)]), True),
        (SettingsRepository(destinations=policies(pending_message_limit=5)), True),
        (SettingsRepository(destinations=policies(dead_letter_address="D")), False),
        (SettingsRepository(destinations=DestinationPolicies(default=entry("#", cursor="vm"))), True),
        (SettingsRepository(destinations=DestinationPolicies([entry("#", cursor="vm")])), False),
    ],
    ids=["nothing", "other settings", "an address", "a topic", "its dead letters", "the default", "a queue"],
)
def test_whether_anybody_has_to_ask(repository: SettingsRepository, concerns: bool) -> None:
    assert repository.concerns_topics is concerns


def test_each_virtual_host_has_topics_of_its_own() -> None:
    """Of the same name in two hosts, also when they are asked for one after the other."""
    one, other = entry("t", "one", pending_message_limit=1), entry("t", "other", pending_message_limit=2)
    repository = SettingsRepository([one, other])
    for _ in range(2):
        found = [repository.topic_layer("t", vhost).get("pending_message_limit") for vhost in ("one", "other", "/")]
        assert found == [1, 2, None]


def test_the_layer_of_a_topic() -> None:
    """Its entry over the address-settings of that name, and of both only what concerns subscribers."""
    repository = SettingsRepository(
        [entry("FOO.#", memory_limit=7, cursor="vm", redelivery_delay_ms=5)],
        destinations=policies(memory_limit=5, pending_message_limit=3),
    )
    assert repository.topic_layer("FOO.A") == layer_of(memory_limit=5, pending_message_limit=3, cursor="vm")
    assert repository.topic_layer("BAR") == {}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([{"memory_limit": 5}], {"memory_limit": 5}),
        ([{"memory_limit": 5}, {"memory_limit": 3}], {"memory_limit": 3}),
        ([{"memory_limit": 0}, {"memory_limit": 3}], {"memory_limit": 3}),
        ([{"pending_message_limit": -1}, {"pending_message_limit": 0}], {"pending_message_limit": 0}),
        ([{"pending_message_limit": -1}, {"cursor": "vm"}], {"pending_message_limit": -1, "cursor": "vm"}),
        ([{"cursor": "file"}, {"cursor": "vm"}], {"cursor": "file"}),
    ],
    ids=["one", "the smaller", "0 is none", "-1 is none", "each has its say", "the first by name"],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_several_topics(layers: list[dict[str, Any]], expected: dict[str, Any], is_reversed: bool) -> None:
    named = [(f"T{number}", layer_of(**fields)) for number, fields in enumerate(layers)]
    assert merge_topics(dict(reversed(named) if is_reversed else named)) == expected
