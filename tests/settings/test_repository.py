"""What holds for a queue or a topic, whichever layer says it, and whatever was asked before: each key, each cache.

Address-settings page 2.2, 2.4, 6.6, 6.7; queues page E.1. The model looks at all layers each time, without a memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from effort import examples

from leveret.settings import Layer, ResolvedSettings, SettingsRepository, SystemUsage, Wildcards, entry, layer_of
from leveret.settings.addresses.destinations import WILDCARDS, DestinationPolicies
from leveret.settings.addresses.entries import Entry
from leveret.settings.addresses.repository import CACHE_MAX
from leveret.settings.addresses.topics import SUBSCRIBER_SETTINGS
from leveret.settings.rows.address_settings import NOTHING_SET, SETTINGS, Setting

EACH_FIELD = pytest.mark.parametrize("field", SETTINGS, ids=lambda field: field.key)
#: Matches that cover a.b, the nearest first.
NEAREST_FIRST = ("a.b", "a.*", "*.b", "a.b.#", "a.#", "#")


def values_of(field: Setting) -> tuple[Any, Any, Any]:
    """Two that are not the default, and one that is false."""
    default = field.default
    if isinstance(default, bool):
        return not default, default, False
    if isinstance(default, str):
        return "one", "two", ""
    return (0.5, 0.25, 0.0) if isinstance(default, float) else (7, 11, 0)


def as_resolved(field: Setting, value: Any) -> Any:
    """0 of some limits is none."""
    is_none = value == 0 and (field.zero_is_none or field.attribute == "max_delivery_attempts")
    return -1 if is_none else value


def found(field: Setting, resolved: ResolvedSettings) -> Any:
    return getattr(resolved, field.attribute)


def one_of(field: Setting, text: str, value: Any, vhost: str | None = None) -> Entry:
    return entry(text, vhost, **{field.attribute: value})


@EACH_FIELD
def test_the_nearest_that_says_it_holds(field: Setting) -> None:
    """Whichever of the matches say it, in whatever order they stand, and also if it says false, 0 or nothing."""
    one, other, false = values_of(field)
    for at, nearest in enumerate(NEAREST_FIRST):
        for value, wide in ((one, other), (other, one), (false, one)):
            entries = [one_of(field, nearest, value)]
            entries += [one_of(field, text, wide) for text in NEAREST_FIRST[at + 1 :]]
            entries += [entry(text) for text in NEAREST_FIRST[:at]]
            for order in (entries, entries[::-1]):
                assert found(field, SettingsRepository(order).resolve("a.b")) == as_resolved(field, value)
    assert found(field, SettingsRepository([one_of(field, "a.b", one)]).resolve("b.a")) == field.default


@EACH_FIELD
def test_a_virtual_host_s_own_entries_come_first(field: Setting) -> None:
    """Its widest before the nearest of all; in others it says nothing."""
    one, other, false = values_of(field)
    for value in (one, false):
        settings = SettingsRepository([one_of(field, "#", value, "v"), one_of(field, "a.b", other)])
        assert found(field, settings.resolve("a.b", "v")) == as_resolved(field, value)
        assert found(field, settings.resolve("a.b", "w")) == other
        assert found(field, settings.resolve("a.b")) == other


@pytest.mark.parametrize(
    "own", [{"redelivery_delay_ms": 5}, {"dead_letter_address": "dead"}], ids=lambda own: next(iter(own))
)
def test_arguments_of_a_queue_limit_no_attempts(own: dict[str, Any]) -> None:
    """Ten attempts are the default where an entry sets redelivery or dead letters (address-settings page 3.1)."""
    for layer in ({"own": layer_of(**own)}, {"own": NOTHING_SET, "policy": layer_of(**own)}):
        assert SettingsRepository().resolve_queue("q", "/", **layer).max_delivery_attempts == -1
        assert SettingsRepository([entry("q", **own)]).resolve_queue("q", "/", **layer).max_delivery_attempts == 10


@EACH_FIELD
def test_the_layers_of_a_queue(field: Setting) -> None:
    """Its own, its policy's, its destination policy's, its address's: the first that says it, false or not."""
    one, other, false = values_of(field)
    attribute = field.attribute
    for value in (one, false):
        for at in range(4):
            layers = [NOTHING_SET] * at + [layer_of(**{attribute: value})]
            layers += [layer_of(**{attribute: other})] * (3 - at)
            own, policy, destination, address = layers
            settings = SettingsRepository(
                [entry("a.#", **address)],
                destinations=DestinationPolicies([entry("a.>", None, WILDCARDS, **destination)]),
            )
            expected = as_resolved(field, value)
            if attribute == "max_delivery_attempts" and not at:  # of these the smaller limit holds
                expected = min(one for one in (value, other) if one > 0)
            for _ in range(2):
                assert found(field, settings.resolve_queue("a.b", "/", own, policy)) == expected, at


@EACH_FIELD
def test_an_entry_that_is_set_at_run_time(field: Setting) -> None:
    """It takes the place of its match; all else of the repository stays, and the old one is as it was."""
    one, other, _ = values_of(field)
    usage = SystemUsage(1000, 0, 0)
    destinations = DestinationPolicies([entry("dest.>", None, WILDCARDS, **{field.attribute: other})])
    old = SettingsRepository(
        [one_of(field, "a.b", one), one_of(field, "a.#", other), one_of(field, "a.b", other, "v")],
        default_max_delivery_attempts=5,
        uuid_namespace="temp",
        id_cache_size=9,
        usage=usage,
        destinations=destinations,
    )
    before = old.resolve("a.b"), old.resolve("a.b", "v"), old.resolve("x")
    new = old.with_entries([one_of(field, "a.b", other)])
    assert (old.resolve("a.b"), old.resolve("a.b", "v"), old.resolve("x")) == before
    assert found(field, new.resolve("a.b")) == other
    assert (new.resolve("a.b", "v"), new.resolve("x")) == before[1:]
    assert len(new.entries) == 3
    again = new.with_entries([one_of(field, "a.b", one), one_of(field, "temp.#", one)])
    assert again.resolve("a.b") == before[0]
    assert found(field, again.resolve("amq.gen-1")) == one
    assert found(field, again.resolve_queue("dest.q", "/", NOTHING_SET)) == other
    assert (again.attempts, again.usage, again.id_cache_size) == (5, usage, 9)


def test_entries_at_run_time_leave_the_wildcards_as_they_are() -> None:
    """Addresses are cut at the delimiter of the configuration."""
    slashes = Wildcards(delimiter="/")
    old = SettingsRepository([entry("a/#", None, slashes, default_ring_size=5)], slashes)
    new = old.with_entries([entry("x", None, slashes, default_ring_size=7)])
    assert [new.resolve(address).default_ring_size for address in ("a/b", "a.b", "x")] == [5, -1, 7]


@EACH_FIELD
def test_what_subscribers_have_from_their_topic(field: Setting) -> None:
    """Flow control and what slow ones suffer, by the topic's destination policy first; nothing else."""
    one, other, _ = values_of(field)
    is_theirs = field.attribute in SUBSCRIBER_SETTINGS
    topics = DestinationPolicies(topics=[entry("t.>", None, WILDCARDS, **{field.attribute: one})])
    settings = SettingsRepository([one_of(field, "#", other)], destinations=topics)
    for _ in range(2):
        assert settings.topic_layer("t.x").get(field.attribute) == (one if is_theirs else None)
        assert settings.topic_layer("u").get(field.attribute) == (other if is_theirs else None)
        assert found(field, settings.resolve_topic("t.x")) == one
        assert found(field, settings.resolve_queue("t.x", "/", NOTHING_SET)) == other
    assert settings.concerns_topics is is_theirs
    assert SettingsRepository([one_of(field, "#", other)]).concerns_topics is is_theirs
    assert SettingsRepository(destinations=topics).concerns_topics is is_theirs
    default = DestinationPolicies(default=one_of(field, "#", one))
    assert SettingsRepository(destinations=default).concerns_topics is is_theirs


# -- whatever was asked before ----------------------------------------------------------------------------------------

WORDS = ("a", "b")
PATTERNS = ("#", "a.#", "a.b.#", "a.*", "*.b", "a.b", "a", "b")
VHOSTS = (None, "/", "v")
#: Few values, so that layers are often equal, and few fields, so that they often overlap.
SAID: dict[str, tuple[Any, ...]] = {
    "max_size_messages": (-1, 0, 5),
    "dead_letter_address": ("", "D"),
    "memory_limit": (0, 9),
    "no_expiry": (False, True),
    "pending_message_limit": (0, 3),
}


class Model:
    """All layers, each time. `attempts`: of the broker."""

    def __init__(self, entries: list[Entry], queues: list[Entry], topics: list[Entry]) -> None:
        self.entries, self.queues, self.topics = entries, queues, topics

    def layers(self, address: str, vhost: str) -> list[Layer]:
        """Of the entries, the nearest first (address-settings page 2.2)."""
        layers = []
        for host in (vhost, None):
            here = {one.match.text: one.settings for one in self.entries if one.vhost == host}
            layers += [here[text] for text in self.nearest_first(address) if text in here]
        return layers

    @staticmethod
    def nearest_first(address: str) -> list[str]:
        words = address.split(".")
        exact = [address]
        stars = ["a.*"] * (len(words) == 2 and words[0] == "a") + ["*.b"] * (len(words) == 2 and words[1] == "b")
        open_ = ["a.b.#"] * (words[:2] == ["a", "b"]) + ["a.#"] * (words[0] == "a") + ["#"]
        return exact + stars + open_

    @staticmethod
    def destination(entries: list[Entry], name: str) -> list[Layer]:
        """Exactly one: that of the name, else the pattern that covers the fewest."""
        here = {one.match.text: one.settings for one in entries}
        names = [name, "a.>" if name == "a" or name.startswith("a.") else "", ">"]
        return next(([here[text]] for text in names if text in here), [])

    @staticmethod
    def merged(layers: Iterable[Layer]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for layer in layers:
            for name in SAID.keys() & layer:
                said.setdefault(name, layer[name])
        return said

    def resolved(self, layers: Iterable[Layer]) -> dict[str, Any]:
        said = self.merged(layers)
        if said.get("memory_limit") == 0:
            said["memory_limit"] = -1
        return {name: said.get(name, getattr(ResolvedSettings(), name)) for name in SAID}


def seen(resolved: ResolvedSettings) -> dict[str, Any]:
    return {name: getattr(resolved, name) for name in SAID}


def drawn(chance: Random, *, rare: float = 0.5) -> dict[str, Any]:
    return {name: chance.choice(values) for name, values in SAID.items() if chance.random() > rare}


@pytest.mark.parametrize("seed", range(examples(30)))
def test_nothing_depends_on_what_was_asked_before(seed: int) -> None:
    """Addresses, virtual hosts, arguments, policies, destination policies and topics, in any order."""
    chance = Random(seed)
    entries = [entry(text, host, **drawn(chance)) for text in PATTERNS for host in VHOSTS if chance.random() < 0.4]
    queues, topics = (
        [entry(text, None, WILDCARDS, **drawn(chance)) for text in (">", "a.>", "a.b", "b") if chance.random() < 0.4]
        for _ in range(2)
    )
    has_destinations = chance.random() < 0.6
    if not has_destinations:
        queues, topics = [], []
    more = {"destinations": DestinationPolicies(queues, topics)} if has_destinations else {}
    model, settings = Model(entries, queues, topics), SettingsRepository(entries, **more)
    layers = [NOTHING_SET, *(layer_of(**drawn(chance, rare=0.7)) for _ in range(3))]
    names = ["a", "b", "a.b", "b.a", "a.a", "a.b.c", "c"]
    for _ in range(150):
        name, host, own, policy = chance.choice(names), chance.choice(("/", "v", "w")), *chance.choices(layers, k=2)
        other = chance.choice([None, *names])
        given = model.layers(name, host)
        of_queue = [*model.destination(queues, other or name), *given]
        of_topic = [*model.destination(topics, name), *given]
        assert seen(settings.resolve(name, host)) == model.resolved(given)
        assert seen(settings.resolve_topic(name, host)) == model.resolved(of_topic)
        assert seen(settings.resolve_queue(name, host, own, policy, other)) == model.resolved([own, policy, *of_queue])
        theirs = {key: value for key, value in model.merged(of_topic).items() if key in SUBSCRIBER_SETTINGS}
        assert settings.topic_layer(name, host) == theirs
        said = {name: layer for name, layer in settings.merged(name, host).items() if name in SAID}
        assert said == model.merged(given)
        if chance.random() < 0.03:
            text, at = chance.choice(PATTERNS), chance.choice(VHOSTS)
            fresh = entry(text, at, **drawn(chance))
            entries = [one for one in entries if (one.match.text, one.vhost) != (text, at)] + [fresh]
            model, settings = Model(entries, queues, topics), settings.with_entries([fresh])


def test_no_cache_grows_with_what_is_asked() -> None:
    """Each of them forgets the oldest; what it forgot is found out again."""
    topics = [entry("t.>", None, WILDCARDS, memory_limit=9)]
    settings = SettingsRepository([entry("#", max_size_messages=5)], destinations=DestinationPolicies(topics, topics))
    for number in range(CACHE_MAX + 50):
        name, own = f"t.{number}", layer_of(max_size_messages=number)
        assert settings.resolve(name).max_size_messages == 5
        assert settings.resolve_topic(name).memory_limit == 9
        assert settings.topic_layer(name) == {"memory_limit": 9}
        assert settings.resolve_queue(name, "/", NOTHING_SET).memory_limit == 9
        assert settings.resolve_queue("t", "/", own).max_size_messages == number
    caches = [value for name, value in vars(settings).items() if name.startswith("_")]
    assert max(len(cache) for cache in caches if isinstance(cache, dict)) <= CACHE_MAX
    assert settings.resolve_queue("t", "/", layer_of(max_size_messages=0)).max_size_messages == 0


def test_a_nearer_limit_of_pending_messages_ends_a_wider_rate() -> None:
    """Also if it says that there is none."""
    wide = entry("#", pending_message_limit_prefetch_rate=2.5)
    repository = SettingsRepository([wide, entry("free", pending_message_limit=-1)])
    rates = [repository.resolve(name, "/").pending_message_limit_prefetch_rate for name in ("other", "free")]
    assert rates == [2.5, -1.0]
